// sgd with one state: the step is what the gradients have gathered.
@group(0) @binding(4) var<storage, read_write> v: array<InMemory>;
fn velocity(i: u32, gradient: vec4<f32>) -> vec4<f32> {
    let gathered = p.momentum * from_memory(v[i]) + gradient;
    v[i] = to_memory(gathered);
    return select(gathered, gradient + p.momentum * gathered, NESTEROV);
}
