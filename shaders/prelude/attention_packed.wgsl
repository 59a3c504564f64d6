// Queries, keys and values in one tensor.
@group(0) @binding(1) var<storage, read_write> qkv: array<vec4<f32>>;

fn operand(which: u32, i: u32) -> vec4<f32> {
    return qkv[i];
}
