// What every matrix product is told: C = op(A) · op(B), C [M, N], K the inner dimension, all strides in elements.
// Each is repeated `batch` times at a_batch, b_batch, c_batch (0: shared). A(i, k) lies at i a_row + k a_col, B(k, j) at
// k b_row + j b_col; kernels for one layout do not read those four.
// In `parts` pieces of K, of `part_len` steps each, a multiple of 32: all products of the first piece, then of the next, each with
// a result c_batch after the last one. Kernels of CPU adapters take one piece and do not read the two.
// grid: tiles_m tiles_n batch parts workgroups, folded: tile = wg.y grid_x + wg.x
struct Params {
    m: u32, n: u32, k: u32, batch: u32,
    tiles_m: u32, tiles_n: u32, grid_x: u32,
    a_batch: u32, b_batch: u32, c_batch: u32,
    a_row: u32, a_col: u32, b_row: u32, b_col: u32,
    parts: u32, part_len: u32,
    @align(16) rest: Rest,
}
@group(0) @binding(0) var<uniform> p: Params;
