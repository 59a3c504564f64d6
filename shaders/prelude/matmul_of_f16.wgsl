// What products read of IEEE binary16, two to a word: the numbers that a widened copy would hold, by integers. A signalling
// NaN stays one until the product makes it quiet.

// Lanes hold 16 bits each.
fn of_f16(half: vec4<u32>) -> vec4<f32> {
    let magnitude = half & vec4(0x7fffu);
    let digits = magnitude << vec4(13u);
    let above = select(vec4(0x38000000u), vec4(0x70000000u), magnitude >= vec4(0x7c00u));
    // Exact, and no f32 is so small that an adapter might take it for 0.
    let small = bitcast<vec4<u32>>(vec4<f32>(magnitude) * 0x1p-24f);
    let number = select(digits + above, small, magnitude < vec4(0x400u));
    return bitcast<vec4<f32>>(number | ((half & vec4(0x8000u)) << vec4(16u)));
}
fn f16_four(words: vec2<u32>) -> vec4<f32> {
    let low = words & vec2(0xffffu);
    let high = words >> vec2(16u);
    return of_f16(vec4(low.x, high.x, low.y, high.y));
}
// Of the lower half of a word.
fn f16_one(word: u32) -> f32 {
    return of_f16(vec4(word & 0xffffu)).x;
}
