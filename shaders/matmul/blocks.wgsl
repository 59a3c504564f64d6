// Products of matrices whose rows are multiples of four long, with batch strides % 4 == 0, for tiles: what they read
// in blocks, by loads of four.
#import matmul/operands
#import matmul/tiles
const APART = 1u;

fn turned(t: Block) -> Block {
    return Block(
        vec4(t.s0.x, t.s1.x, t.s2.x, t.s3.x), vec4(t.s0.y, t.s1.y, t.s2.y, t.s3.y),
        vec4(t.s0.z, t.s1.z, t.s2.z, t.s3.z), vec4(t.s0.w, t.s1.w, t.s2.w, t.s3.w),
    );
}

// Where four rows (columns) begin, in units of vec4; where they are neighbours in memory, all four in `at.x`. Rows past the edge
// repeat the last ones and are never stored. Steps past K are zero, on both sides.
struct Rows {
    at: vec4<u32>,
}
fn rows_at(product: u32, row: u32) -> Rows {
    let start = product % p.batch * (p.a_batch / 4u);
    if (TRANSPOSE_A) {
        return Rows(vec4(start + min(row / 4u, p.m / 4u - 1u)));
    }
    return Rows(start + min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(p.m - 1u)) * (p.k / 4u));
}
fn a_across(rows: Rows, k: u32) -> vec4<f32> {
    return select(vec4<f32>(), read_a(rows.at.x + min(k, p.k - 1u) * (p.m / 4u)), k < p.k);
}
fn a_along(row: u32, k4: u32) -> vec4<f32> {
    return select(vec4<f32>(), read_a(row + min(k4, p.k / 4u - 1u)), k4 < p.k / 4u);
}
fn a_block(rows: Rows, k: u32, end: u32) -> Block {
    if (TRANSPOSE_A) {
        return Block(a_across(rows, k), a_across(rows, k + 1u), a_across(rows, k + 2u), a_across(rows, k + 3u));
    }
    let k4 = k / 4u;
    return turned(Block(a_along(rows.at.x, k4), a_along(rows.at.y, k4), a_along(rows.at.z, k4), a_along(rows.at.w, k4)));
}
struct Columns {
    at: vec4<u32>,
}
fn columns_at(product: u32, column: u32) -> Columns {
    let start = product % p.batch * (p.b_batch / 4u);
    if (TRANSPOSE_B) {
        return Columns(start + min(vec4(column) + vec4(0u, 1u, 2u, 3u), vec4(p.n - 1u)) * (p.k / 4u));
    }
    return Columns(vec4(start + min(column / 4u, p.n / 4u - 1u)));
}
fn b_across(columns: Columns, k: u32) -> vec4<f32> {
    return select(vec4<f32>(), read_b(columns.at.x + min(k, p.k - 1u) * (p.n / 4u)), k < p.k);
}
fn b_along(column: u32, k4: u32) -> vec4<f32> {
    return select(vec4<f32>(), read_b(column + min(k4, p.k / 4u - 1u)), k4 < p.k / 4u);
}
fn b_block(columns: Columns, k: u32, end: u32) -> Block {
    if (TRANSPOSE_B) {
        let k4 = k / 4u;
        let at = columns.at;
        return turned(Block(b_along(at.x, k4), b_along(at.y, k4), b_along(at.z, k4), b_along(at.w, k4)));
    }
    return Block(
        b_across(columns, k), b_across(columns, k + 1u), b_across(columns, k + 2u), b_across(columns, k + 3u),
    );
}
