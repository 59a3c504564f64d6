// The gradients of keys and values in tensors of their own.
@group(0) @binding(6) var<storage, read_write> dk: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> dv: array<vec4<f32>>;

fn result(which: u32, i: u32) -> vec4<f32> {
    if (which == K) {
        return dk[i];
    }
    return dv[i];
}

fn set_result(which: u32, i: u32, value: vec4<f32>) {
    if (which == K) {
        dk[i] = value;
    } else {
        dv[i] = value;
    }
}
