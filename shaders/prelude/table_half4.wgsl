// A table in 16 bits, two elements to a word, read in fours.
@group(0) @binding(1) var<storage, read_write> table: array<vec2<u32>>;
fn table_at(i: u32) -> vec4<f32> {
    let words = table[i];
    let low = words & vec2(0xffffu);
    let high = words >> vec2(16u);
    return bitcast<vec4<f32>>(from_half(vec4(low.x, high.x, low.y, high.y)));
}
