// What products read of bfloat16, two to a word: the numbers that a widened copy would hold. A signalling NaN stays one until
// the product makes it quiet.
fn bf16_four(words: vec2<u32>) -> vec4<f32> {
    let low = words << vec2(16u);
    let high = words & vec2(0xffff0000u);
    return bitcast<vec4<f32>>(vec4(low.x, high.x, low.y, high.y));
}
// Of the lower half of a word.
fn bf16_one(word: u32) -> f32 {
    return bitcast<f32>(word << 16u);
}
