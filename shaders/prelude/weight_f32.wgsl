// Weights in 32 bits.
@group(0) @binding(1) var<storage, read_write> w: array<InMemory>;

fn weight_at(i: u32) -> vec4<f32> {
    return from_memory(w[i]);
}

fn set_weight(i: u32, to: vec4<f32>) {
    w[i] = to_memory(to);
}
