// Tiles of 64 x 64 in workgroup memory.
#if MATMUL && OPERANDS_VEC4
#import matmul/blocks
#elif MATMUL
#import matmul/quads
#elif WEIGHT
#import conv/weight_operands
#else
#import conv/operands
#endif
// tile: matrix products, for GPUs     SIDE x SIDE results per workgroup of SIDE threads, 8 x 8 each
// The imported source of the operands defines the number of products(), where a tile of `side` rows and columns begins and
// which steps are summed; rows_at and columns_at, the state of a quad of rows of A and columns of B, which lie APART from each
// other; their blocks of four steps, or their vec4 for a step, zero for steps past the end; and stores a row of results.
// A_ACROSS, B_ACROSS: whether neighbouring threads should load along rows (columns) instead of steps.
// grid: tiles_m * tiles_n * products() workgroups, folded: tile = wg.y * grid_x + wg.x; surplus workgroups return
//   tiles_m = ceil(m / SIDE), tiles_n = ceil(columns / SIDE)
// requires: 8,192 bytes of workgroup memory
#if SOFTWARE
#let UNROLLED 1
#else
#let UNROLLED 16
#endif
// Iterations that are written out: an H100 takes 1.4 times as long for a loop, software adapters take long to compile them.
const UNROLLED = $(UNROLLED)u;
const SIDE = 64u;
// Quads of rows (of columns) of a tile.
const QUADS = SIDE / 4u;

// The first row (column) of a quad.
fn line(quad: u32) -> u32 { return quad / APART * (4u * APART) + quad % APART; }

// A quad for each of four steps, or four quads of a step.
struct Block {
    s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>,
}
#if MATMUL && !OPERANDS_VEC4
struct Steps { s0: Step, s1: Step, s2: Step, s3: Step, }
fn steps_from(k: u32, end: u32, along: bool) -> Steps {
    return Steps(
#repeat i 4
        step_of(k + select($(i)u, 0u, along), end),
#endrepeat
    );
}
// The quads of rows that a thread loads: the same four times, or with A_ALONG four of one step.
struct RowQuads { q0: Rows, q1: Rows, q2: Rows, q3: Rows, }
fn row_quads(product: u32, first: u32, quad: u32) -> RowQuads {
    return RowQuads(
#repeat i 4
        rows_at(product, first + line(quad + select(0u, $(i)u, A_ALONG))),
#endrepeat
    );
}
fn a_block(rows: RowQuads, k: u32, end: u32) -> Block {
    let at = steps_from(k, end, A_ALONG);
    return Block(a_quad(rows.q0, at.s0), a_quad(rows.q1, at.s1), a_quad(rows.q2, at.s2), a_quad(rows.q3, at.s3));
}
struct ColumnQuads { q0: Columns, q1: Columns, q2: Columns, q3: Columns, }
fn column_quads(product: u32, first: u32, quad: u32) -> ColumnQuads {
    return ColumnQuads(
#repeat i 4
        columns_at(product, first + line(quad + select(0u, $(i)u, B_ALONG))),
#endrepeat
    );
}
fn b_block(columns: ColumnQuads, k: u32, end: u32) -> Block {
    let at = steps_from(k, end, B_ALONG);
    return Block(
        b_quad(columns.q0, at.s0), b_quad(columns.q1, at.s1), b_quad(columns.q2, at.s2), b_quad(columns.q3, at.s3),
    );
}
#else
const A_ALONG = false;
const B_ALONG = false;
fn row_quads(product: u32, first: u32, quad: u32) -> Rows { return rows_at(product, first + line(quad)); }
fn column_quads(product: u32, first: u32, quad: u32) -> Columns { return columns_at(product, first + line(quad)); }
#endif
#if !MATMUL
const APART = 1u;
struct Steps { s0: Step, s1: Step, s2: Step, s3: Step, }
fn steps_from(k: u32, end: u32) -> Steps {
    let s0 = step_of(k, end);
    let s1 = step_after(s0, k + 1u < end);
    let s2 = step_after(s1, k + 2u < end);
    return Steps(s0, s1, s2, step_after(s2, k + 3u < end));
}
fn a_block(rows: Rows, k: u32, end: u32) -> Block {
    let at = steps_from(k, end);
    return Block(a_quad(rows, at.s0), a_quad(rows, at.s1), a_quad(rows, at.s2), a_quad(rows, at.s3));
}
fn b_block(columns: Columns, k: u32, end: u32) -> Block {
    let at = steps_from(k, end);
    return Block(b_quad(columns, at.s0), b_quad(columns, at.s1), b_quad(columns, at.s2), b_quad(columns, at.s3));
}
#endif

// Sixteen steps, QUADS quads each.
var<workgroup> a_tile: array<vec4<f32>, 16u * QUADS>;
var<workgroup> b_tile: array<vec4<f32>, 16u * QUADS>;

// Where quad `q` of step `k` lies. Quads trade places by step, so that what neighbouring threads store, quads of a step or two
// of each fourth step, spreads over all banks: padding would do that too, and take more memory. A quad of eight steps spreads
// over half of them; more permutations take more registers, and convolutions on an H100 9 % longer.
fn place(k: u32, q: u32) -> u32 {
#if MATMUL
    return k * QUADS + (q ^ (k / 4u * 2u) ^ (k % 4u / 2u * 4u));
#else
    return k * QUADS + (q ^ (k / 4u * 2u));
#endif
}

fn put_a(k: u32, quad: u32, block: Block) {
#repeat i 4
    a_tile[select(place(k + $(i)u, quad), place(k, quad + $(i)u), A_ALONG)] = block.s$i;
#endrepeat
}
fn put_b(k: u32, quad: u32, block: Block) {
#repeat i 4
    b_tile[select(place(k + $(i)u, quad), place(k, quad + $(i)u), B_ALONG)] = block.s$i;
#endrepeat
}

// The first step and the first quad that a thread fetches: sixteen threads load neighbouring steps, or neighbouring quads, or
// four of them each four steps.
fn share(thread: u32, across: bool, along: bool) -> vec2<u32> {
    let together = select(vec2(thread % 4u * 4u, thread / 4u), vec2(thread % 16u, thread / 16u * 4u), along);
    return select(together, vec2(thread / QUADS * 4u, thread % QUADS), across);
}

@compute @workgroup_size(SIDE)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = wg.y * p.grid_x + wg.x;
    let product = tile / (p.tiles_m * p.tiles_n);
    if (product >= products()) {
        return;
    }
    let first = corner(tile % (p.tiles_m * p.tiles_n), SIDE);
    let steps = steps_of(product);
    // Each thread fetches a block of A and one of B; the loads of the next iteration are in flight while this one computes.
    let a = share(thread, A_ACROSS, A_ALONG);
    let b = share(thread, B_ACROSS, B_ALONG);
    let rows = row_quads(product, first.x, a.y);
    let columns = column_quads(product, first.y, b.y);
    var next_a = Block();
    var next_b = Block();
    if (steps.x < steps.y) {
        next_a = a_block(rows, steps.x + a.x, steps.y);
        next_b = b_block(columns, steps.x + b.x, steps.y);
    }
    // A thread owns row quads y and y + 8, column quads x and x + 8.
    let x = thread % 8u;
    let y = thread / 8u;
#repeat i 8
    var l$i = vec4<f32>();
    var r$i = vec4<f32>();
#endrepeat
    for (var k0 = steps.x; k0 < steps.y; k0 += 16u) {
        put_a(a.x, a.y, next_a);
        put_b(b.x, b.y, next_b);
        workgroupBarrier();
        if (k0 + 16u < steps.y) {
            next_a = a_block(rows, k0 + 16u + a.x, steps.y);
            next_b = b_block(columns, k0 + 16u + b.x, steps.y);
        }
        for (var from_k = 0u; from_k < 16u; from_k += UNROLLED) {
#repeat k $UNROLLED
            {
                let k = from_k + $(k)u;
                let a0 = a_tile[place(k, y)];
                let a1 = a_tile[place(k, y + QUADS / 2u)];
                let left = b_tile[place(k, x)];
                let right = b_tile[place(k, x + QUADS / 2u)];
#repeat i 8
                l$i = fma(vec4(a$(i / 4)[$(i % 4)]), left, l$i);
                r$i = fma(vec4(a$(i / 4)[$(i % 4)]), right, r$i);
#endrepeat
            }
#endrepeat
        }
        workgroupBarrier();
    }
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let near = results_at(product, first.y + line(x));
    let far = results_at(product, first.y + line(x + QUADS / 2u));
    for (var i = 0u; i < 8u; i += 1u) {
        let row = first.x + line(y + i / 4u * (QUADS / 2u)) + i % 4u * APART;
        if (row < p.m) {
            store_row(near, far, row, l0, r0);
        }
#repeat i 7
        l$i = l$(i + 1);
        r$i = r$(i + 1);
#endrepeat
    }
}
