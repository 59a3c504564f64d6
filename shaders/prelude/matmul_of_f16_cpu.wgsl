// What products read of IEEE binary16 on CPU adapters, whose own conversion is exact, and faster than integers. Drivers of
// GPUs may take subnormal numbers for 0.
fn f16_four(words: vec2<u32>) -> vec4<f32> {
    return vec4(unpack2x16float(words.x), unpack2x16float(words.y));
}
// Of the lower half of a word.
fn f16_one(word: u32) -> f32 {
    return unpack2x16float(word).x;
}
