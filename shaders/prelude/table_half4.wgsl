// A table in 16 bits, two elements to a word, read in fours.
@group(0) @binding(1) var<storage, read_write> table: array<vec2<u32>>;
fn table_at(i: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(widened(table[i]));
}
