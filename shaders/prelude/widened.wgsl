// Four elements of 16 bits, two to a word, as the bits of four f32.
fn widened(words: vec2<u32>) -> vec4<u32> {
    let low = words & vec2(0xffffu);
    let high = words >> vec2(16u);
    return from_half(vec4(low.x, high.x, low.y, high.y));
}

// Of elements of 16 bits in any places the f32, from the words that they lie in.
fn one_of_two(words: vec4<u32>, places: vec4<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(from_half((words >> ((places & vec4(1u)) * 16u)) & vec4(0xffffu)));
}
