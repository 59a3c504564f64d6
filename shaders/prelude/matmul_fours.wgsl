// Operands in fours, for matrix products whose rows are multiples of four long.
@group(0) @binding(1) var<storage, read_write> a: array<AFour>;
@group(0) @binding(2) var<storage, read_write> b: array<BFour>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<f32>>;

fn read_a(i: u32) -> vec4<f32> {
    return a_of_four(a[i]);
}
fn read_b(i: u32) -> vec4<f32> {
    return b_of_four(b[i]);
}
