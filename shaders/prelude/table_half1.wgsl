// A table in 16 bits, two elements to a word.
@group(0) @binding(1) var<storage, read_write> table: array<u32>;
fn table_at(i: u32) -> f32 {
    return bitcast<f32>(from_half(vec4((table[i / 2u] >> (i % 2u * 16u)) & 0xffffu)).x);
}
