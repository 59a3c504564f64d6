// Dropout: the factors of four neighbouring weights, 0 or 1 / (1 - p). They are a function of (seed, step, key, row, column)
// by pcg4d (Jarzynski & Olano 2020): drawn again, they are the same.
// scalars [8]: graph::StepScalars
@group(0) @binding(8) var<storage, read_write> scalars: array<u32>;
const DROPOUT = true;

// Of row `row` = (batch heads + head) rows + query, keys 4 quad to 4 quad + 3.
fn kept(row: u32, quad: u32) -> vec4<f32> {
    let drawn = pcg4d(vec4(row, quad, scalars[3] ^ scalars[5], scalars[4] ^ (p.key * 0x9e3779b9u)));
    return select(vec4<f32>(), vec4(p.keep), drawn >= vec4(p.threshold));
}
