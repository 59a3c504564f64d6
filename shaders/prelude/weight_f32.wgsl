// Weights in 32 bits.
@group(0) @binding(1) var<storage, read_write> w: array<Four>;

fn weight_at(i: u32) -> vec4<f32> {
    return of_four(w[i]);
}

fn set_weight(i: u32, to: vec4<f32>) {
    w[i] = four_of(to);
}
