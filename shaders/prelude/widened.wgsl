// Four elements of 16 bits, two to a word, as the bits of four f32.
fn widened(words: vec2<u32>) -> vec4<u32> {
    let low = words & vec2(0xffffu);
    let high = words >> vec2(16u);
    return from_half(vec4(low.x, high.x, low.y, high.y));
}
