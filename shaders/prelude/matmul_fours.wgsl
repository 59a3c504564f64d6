// Operands in fours, for matrix products whose rows are multiples of four long.
@group(0) @binding(1) var<storage, read_write> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<f32>>;

// Four steps of K for one row of the tile, in the order of K.
fn step4(
    s: vec4<f32>, b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>, acc: vec4<f32>,
) -> vec4<f32> {
    return fma(vec4(s.w), b3, fma(vec4(s.z), b2, fma(vec4(s.y), b1, fma(vec4(s.x), b0, acc))));
}
