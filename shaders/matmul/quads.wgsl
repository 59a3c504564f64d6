// Products of matrices of any sizes, for tiles: what they read in quads, element by element.
#import matmul/operands
#import matmul/tiles
struct Step {
    k: u32,
    live: bool,
}
fn step_of(k: u32, end: u32) -> Step { return Step(min(k, end - 1u), k < end); }

// Rows (columns) of a quad, so that neighbouring threads load, and store, neighbours.
const APART = 16u;
// Sixteen threads load neighbouring steps of a row (column).
override A_ALONG: bool = !A_ACROSS;
override B_ALONG: bool = !B_ACROSS;

// Rows (columns) past the edge repeat the last one and are never stored.
struct Rows {
    at: vec4<u32>,
}
fn rows_at(product: u32, row: u32) -> Rows {
    let batch = product % p.batch;
    let row4 = min(row + APART * vec4(0u, 1u, 2u, 3u), vec4(p.m - 1u));
    return Rows(batch * p.a_batch + select(row4 * p.k, row4, TRANSPOSE_A));
}
fn a_quad(rows: Rows, step: Step) -> vec4<f32> {
    let i = rows.at + select(step.k, step.k * p.m, TRANSPOSE_A);
    return select(vec4<f32>(), read_four_a(i), step.live);
}
struct Columns {
    at: vec4<u32>,
}
fn columns_at(product: u32, column: u32) -> Columns {
    let batch = product % p.batch;
    let column4 = min(column + APART * vec4(0u, 1u, 2u, 3u), vec4(p.n - 1u));
    return Columns(batch * p.b_batch + select(column4, column4 * p.k, TRANSPOSE_B));
}
fn b_quad(columns: Columns, step: Step) -> vec4<f32> {
    let i = columns.at + select(step.k * p.n, step.k, TRANSPOSE_B);
    return select(vec4<f32>(), read_four_b(i), step.live);
}
