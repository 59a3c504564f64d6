// Operands of a matrix product for cooperative matrices.
#import matmul/params
#import common/store
#if A_F16
// A in the 16 bits that are multiplied.
@group(0) @binding(1) var<storage, read_write> a: array<vec4<f16>>;
#else
// A in 32 bits, rounded where it is read.
@group(0) @binding(1) var<storage, read_write> a: array<vec4<f32>>;
#endif
#if B_F16
// B in the 16 bits that are multiplied.
@group(0) @binding(2) var<storage, read_write> b: array<vec4<f16>>;
#elif B_INT8 || B_INT4 || B_NF4
// B in 4 or 8 bits, widened and rounded where it is read.
#import common/codes
@group(0) @binding(2) var<storage, read_write> b: array<u32>;
fn quad_of_b(i: u32) -> vec4<f16> { return vec4<f16>(four_of_codes(i, b[codes_at(i)], b[scales_at(i)])); }
fn one_of_b(i: u32) -> f16 { return f16(one_of_codes(i, b[codes_at(i / 4u)], b[scales_at(i / 4u)])); }
#else
// B in 32 bits, rounded where it is read.
@group(0) @binding(2) var<storage, read_write> b: array<vec4<f32>>;
#endif
fn quad_of_a(i: u32) -> vec4<f16> { return vec4<f16>(a[i]); }
fn one_of_a(i: u32) -> f16 { return f16(a[i / 4u][i % 4u]); }
#if !B_INT8 && !B_INT4 && !B_NF4
fn quad_of_b(i: u32) -> vec4<f16> { return vec4<f16>(b[i]); }
fn one_of_b(i: u32) -> f16 { return f16(b[i / 4u][i % 4u]); }
#endif
// What cooperative matrices multiply for C = op(A) op(B). Tiles lie as in memory, whatever is transposed.
// a [M, K], or [K, M] with TRANSPOSE_A   b [K, N], or [N, K] with TRANSPOSE_B   ->   c [M, N]
//   repeated `batch` times; K = 0 gives zeros      tiles_m = ceil(M / TILE_M), tiles_n = ceil(N / TILE_N)
// overrides: TRANSPOSE_A, TRANSPOSE_B; VEC4_A, VEC4_B: lines in memory are multiples of four long
@group(0) @binding(3) var<storage, read_write> c: array<f32>;
override TRANSPOSE_A: bool = false;
override TRANSPOSE_B: bool = false;
override VEC4_A: bool = false;
override VEC4_B: bool = false;
// Lines in memory are read along.
const DOWN_A = false;
const DOWN_B = false;

fn workgroups() -> u32 { return p.tiles_m * p.tiles_n * p.batch * p.parts; }

struct Work {
    product: u32, row: u32, column: u32, step: u32, end: u32,
}
fn work_of(number: u32) -> Work {
    let per_matrix = p.tiles_m * p.tiles_n;
    let row = number % per_matrix / p.tiles_n * TILE_M;
    let column = number % per_matrix % p.tiles_n * TILE_N;
    let product = number / per_matrix;
    let first = product / p.batch * p.part_len;
    return Work(product, row, column, first, min(first + p.part_len, p.k));
}

// Where a tile begins in an operand of `lines` lines of `length` numbers.
struct Corner {
    base: u32, line: u32, along: u32, lines: u32, length: u32,
}
alias OfA = Corner;
alias OfB = Corner;
fn of_a(work: Work, thread: u32) -> Corner {
    if (TRANSPOSE_A) {
        return Corner(work.product % p.batch * p.a_batch, 0u, work.row, p.k, p.m);
    }
    return Corner(work.product % p.batch * p.a_batch, work.row, 0u, p.m, p.k);
}
fn of_b(work: Work, thread: u32) -> Corner {
    if (TRANSPOSE_B) {
        return Corner(work.product % p.batch * p.b_batch, work.column, 0u, p.n, p.k);
    }
    return Corner(work.product % p.batch * p.b_batch, 0u, work.column, p.k, p.n);
}

// Four neighbours of a tile, `far` lines and places from its corner: where they lie, and how many of them exist.
fn find(corner: Corner, far: vec2<u32>) -> vec2<u32> {
    let line = corner.line + far.x;
    let along = corner.along + far.y;
    let live = line < corner.lines && along < corner.length;
    let at = corner.base + line * corner.length + along;
    return select(vec2(0u), vec2(at, min(corner.length - along, 4u)), live);
}

// Zeros beyond the edges. What is past K is zero on both sides; what is past M or N is never stored.
fn four_of_a(corner: Corner, k0: u32, number: u32) -> vec4<f16> {
    let found = find(corner, spot(number, across_a(), DOWN_A) + select(vec2(0u, k0), vec2(k0, 0u), TRANSPOSE_A));
    if (VEC4_A) {
        return select(vec4<f16>(), quad_of_a(found.x / 4u), found.y > 0u);
    }
    let i = found.x + min(vec4(0u, 1u, 2u, 3u), vec4(max(found.y, 1u) - 1u));
    let four = vec4(one_of_a(i.x), one_of_a(i.y), one_of_a(i.z), one_of_a(i.w));
    return select(vec4<f16>(), four, vec4(0u, 1u, 2u, 3u) < vec4(found.y));
}

fn four_of_b(corner: Corner, k0: u32, number: u32) -> vec4<f16> {
    let found = find(corner, spot(number, across_b(), DOWN_B) + select(vec2(k0, 0u), vec2(0u, k0), TRANSPOSE_B));
    if (VEC4_B) {
        return select(vec4<f16>(), quad_of_b(found.x / 4u), found.y > 0u);
    }
    let i = found.x + min(vec4(0u, 1u, 2u, 3u), vec4(max(found.y, 1u) - 1u));
    let four = vec4(one_of_b(i.x), one_of_b(i.y), one_of_b(i.z), one_of_b(i.w));
    return select(vec4<f16>(), four, vec4(0u, 1u, 2u, 3u) < vec4(found.y));
}

// Places in row 0 of the product's matrix, and where that begins.
struct Results {
    base: u32, at: vec4<u32>,
}
fn results_of(work: Work, column: u32) -> Results {
    return Results(work.product * p.c_batch, column + vec4(0u, 1u, 2u, 3u));
}
fn put_four(to: Results, row: u32, v: vec4<f32>) {
    if (row < p.m) {
        store(to.base + row * p.n + to.at, to.at < vec4(p.n), v);
    }
}
