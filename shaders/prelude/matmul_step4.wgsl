// Four steps of K for one row of the tile, in the order of K.
fn step4(
    s: vec4<f32>, b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>, acc: vec4<f32>,
) -> vec4<f32> {
    return fma(vec4(s.w), b3, fma(vec4(s.z), b2, fma(vec4(s.y), b1, fma(vec4(s.x), b0, acc))));
}
