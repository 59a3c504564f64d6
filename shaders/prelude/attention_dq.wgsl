// The gradient of the queries in a tensor of its own.
@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;

fn result(which: u32, i: u32) -> vec4<f32> {
    return dq[i];
}

fn set_result(which: u32, i: u32, value: vec4<f32>) {
    dq[i] = value;
}
