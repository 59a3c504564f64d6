// Tiles of 64 x 64 in workgroup memory.
#if MATMUL
#import matmul/quads
#elif WEIGHT
#import conv/weight_operands
#else
#import conv/operands
#endif
// tile64: matrix products, for GPUs     64 x 64 results per workgroup of 64 threads, 8 x 8 each
// The imported source of the operands defines the number of products(), where a tile of `side` rows and columns begins and
// which steps are summed; rows_at and columns_at, the state of four neighbouring rows of A and columns of B, and their vec4
// for a step, zero for steps past the end; and stores a row of results. A_ACROSS, B_ACROSS: whether neighbouring threads
// should load along rows (columns) instead of steps.
// grid: tiles_m * tiles_n * products() workgroups, folded: tile = wg.y * grid_x + wg.x; surplus workgroups return
//   tiles_m = ceil(m / 64), tiles_n = ceil(columns / 64)
// requires: 8704 bytes of workgroup memory

// Sixteen steps, sixteen quads of rows (of columns) each; a row of 17 spreads a store over all banks.
const PITCH = 17u;
var<workgroup> a_tile: array<vec4<f32>, 272>;
var<workgroup> b_tile: array<vec4<f32>, 272>;

// The i-th of four places that a thread fills: step and quad.
fn share(thread: u32, i: u32, across: bool) -> vec2<u32> {
    let inner = thread % 16u;
    let outer = thread / 16u + i * 4u;
    return select(vec2(inner, outer), vec2(outer, inner), across);
}
fn place(own: vec2<u32>) -> u32 { return own.x * PITCH + own.y; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = wg.y * p.grid_x + wg.x;
    let product = tile / (p.tiles_m * p.tiles_n);
    if (product >= products()) {
        return;
    }
    let first = corner(tile % (p.tiles_m * p.tiles_n), 64u);
    let steps = steps_of(product);
    // A thread owns row quads y and y + 8, column quads x and x + 8.
    let x = thread % 8u;
    let y = thread / 8u;
    // Where it loads one quad at four steps the four are the same, where four quads at one step the steps are.
#repeat i 4
    let a$i = share(thread, $(i)u, A_ACROSS);
    let b$i = share(thread, $(i)u, B_ACROSS);
    let rows$i = rows_at(product, first.x + a$i.y * 4u);
    let columns$i = columns_at(product, first.y + b$i.y * 4u);
#endrepeat
#repeat i 8
    var l$i = vec4<f32>();
    var r$i = vec4<f32>();
#endrepeat
    for (var k0 = steps.x; k0 < steps.y; k0 += 16u) {
#repeat i 4
        a_tile[place(a$i)] = a_quad(rows$i, step_of(k0 + a$i.x, steps.y));
        b_tile[place(b$i)] = b_quad(columns$i, step_of(k0 + b$i.x, steps.y));
#endrepeat
        workgroupBarrier();
        for (var k = 0u; k < 16u; k += 1u) {
            let s0 = a_tile[k * PITCH + y];
            let s1 = a_tile[k * PITCH + y + 8u];
            let left = b_tile[k * PITCH + x];
            let right = b_tile[k * PITCH + x + 8u];
#repeat i 8
            l$i = fma(vec4(s$(i / 4)[$(i % 4)]), left, l$i);
            r$i = fma(vec4(s$(i / 4)[$(i % 4)]), right, r$i);
#endrepeat
        }
        workgroupBarrier();
    }
    let near = results_at(product, first.y + x * 4u);
    let far = results_at(product, first.y + x * 4u + 32u);
    let row = first.x + y * 4u;
#repeat i 8
    store_live(near, far, row + $(i / 4 * 32 + i % 4)u, l$i, r$i);
#endrepeat
}

fn store_live(near: Results, far: Results, row: u32, left: vec4<f32>, right: vec4<f32>) {
    if (row < p.m) {
        store_row(near, far, row, left, right);
    }
}
