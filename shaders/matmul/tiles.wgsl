// What tiles ask of a product of matrices, and where its results go: C = op(A) · op(B), repeated `batch` times; K = 0 gives zeros.
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

#if STORE_VEC4
// Where results of four neighbouring columns lie in row 0, in units of vec4.
struct Results {
    at: u32,
    live: bool,
}
fn results_at(product: u32, column: u32) -> Results {
    return Results(product * (p.c_batch / 4u) + column / 4u, column < p.n);
}
fn store_row(near: Results, far: Results, row: u32, left: vec4<f32>, right: vec4<f32>) {
    if (near.live) {
        store(near.at + row * (p.n / 4u), left);
    }
    if (far.live) {
        store(far.at + row * (p.n / 4u), right);
    }
}
#else
// Where results of the columns of a quad lie in row 0.
struct Results {
    at: vec4<u32>,
    live: vec4<bool>,
}
fn results_at(product: u32, column: u32) -> Results {
    let column4 = column + APART * vec4(0u, 1u, 2u, 3u);
    return Results(product * p.c_batch + column4, column4 < vec4(p.n));
}
fn store_row(near: Results, far: Results, row: u32, left: vec4<f32>, right: vec4<f32>) {
    store(near.at + row * p.n, near.live, left);
    store(far.at + row * p.n, far.live, right);
}
#endif
