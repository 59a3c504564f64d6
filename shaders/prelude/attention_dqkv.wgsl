// The gradients of queries, keys and values in one tensor, laid out as they are.
@group(0) @binding(6) var<storage, read_write> dqkv: array<vec4<f32>>;

fn result(which: u32, i: u32) -> vec4<f32> {
    return dqkv[i];
}

fn set_result(which: u32, i: u32, value: vec4<f32>) {
    dqkv[i] = value;
}
