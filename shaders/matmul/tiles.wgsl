// What tiles of any size ask of a product of matrices: C = op(A) · op(B), repeated `batch` times; K = 0 gives zeros.
override TRANSPOSE_A: bool = false;
override TRANSPOSE_B: bool = false;
// Neighbouring threads follow the dimension that is contiguous in memory.
override A_ACROSS: bool = TRANSPOSE_A;
override B_ACROSS: bool = !TRANSPOSE_B;

fn products() -> u32 { return p.batch * p.parts; }
fn corner(tile: u32, side: u32) -> vec2<u32> {
    return vec2(tile / p.tiles_n, tile % p.tiles_n) * side;
}
fn steps_of(product: u32) -> vec2<u32> {
    let first = product / p.batch * p.part_len;
    return vec2(first, min(first + p.part_len, p.k));
}
