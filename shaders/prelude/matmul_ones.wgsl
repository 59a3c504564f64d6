// Operands element by element, for matrix products of any sizes and strides.
@group(0) @binding(1) var<storage, read_write> a: array<AWord>;
@group(0) @binding(2) var<storage, read_write> b: array<BWord>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

fn read_a(i: u32) -> f32 {
    return a_of_word(a[i / A_IN_WORD], i);
}
fn read_b(i: u32) -> f32 {
    return b_of_word(b[i / B_IN_WORD], i);
}
fn read_four_a(i: vec4<u32>) -> vec4<f32> {
    return vec4(read_a(i.x), read_a(i.y), read_a(i.z), read_a(i.w));
}
fn read_four_b(i: vec4<u32>) -> vec4<f32> {
    return vec4(read_b(i.x), read_b(i.y), read_b(i.z), read_b(i.w));
}
