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
// which steps are summed; rows_at and columns_at, the state of four neighbouring rows of A and columns of B; their blocks of
// four steps, or their vec4 for a step, zero for steps past the end; and stores a row of results. A_ACROSS, B_ACROSS: whether
// neighbouring threads should load along rows (columns) instead of steps.
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

// Four steps for four neighbouring rows (columns): a quad for each step.
struct Block {
    s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>,
}
#if !MATMUL || !OPERANDS_VEC4
struct Steps {
    s0: Step, s1: Step, s2: Step, s3: Step,
}
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

// Where quad `q` of step `k` lies. Every fourth step quads trade places in pairs, so that blocks which are transposed on
// their way here, of neighbouring threads, spread over all banks: padding would do that too, and take more memory.
fn place(k: u32, q: u32) -> u32 {
    return k * QUADS + (q ^ (k / 4u * 2u));
}

fn put_a(k: u32, quad: u32, block: Block) {
#repeat i 4
    a_tile[place(k + $(i)u, quad)] = block.s$i;
#endrepeat
}
fn put_b(k: u32, quad: u32, block: Block) {
#repeat i 4
    b_tile[place(k + $(i)u, quad)] = block.s$i;
#endrepeat
}

// Which four steps and which quad a thread fetches.
fn share(thread: u32, across: bool) -> vec2<u32> {
    return select(vec2(thread % 4u * 4u, thread / 4u), vec2(thread / QUADS * 4u, thread % QUADS), across);
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
    let a = share(thread, A_ACROSS);
    let b = share(thread, B_ACROSS);
    let rows = rows_at(product, first.x + a.y * 4u);
    let columns = columns_at(product, first.y + b.y * 4u);
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
    let near = results_at(product, first.y + x * 4u);
    let far = results_at(product, first.y + x * 4u + SIDE / 2u);
    for (var i = 0u; i < 8u; i += 1u) {
        let row = first.x + i / 4u * (SIDE / 2u) + y * 4u + i % 4u;
        if (row < p.m) {
            store_row(near, far, row, l0, r0);
        }
#repeat i 7
        l$i = l$(i + 1);
        r$i = r$(i + 1);
#endrepeat
    }
}
