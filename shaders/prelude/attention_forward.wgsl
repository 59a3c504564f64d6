// Results of attention: o [b, rows, heads, d] and, for each row of scores, the logarithm of the sum of its exponentials.
@group(0) @binding(4) var<storage, read_write> o: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;

fn source(which: u32, i: u32) -> vec4<f32> {
    return operand(which, i);
}

fn result(which: u32, i: u32) -> vec4<f32> {
    return o[i];
}

fn set_result(which: u32, i: u32, value: vec4<f32>) {
    o[i] = value;
}
