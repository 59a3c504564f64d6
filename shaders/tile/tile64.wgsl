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
    let a0 = share(thread, 0u, A_ACROSS);
    let a1 = share(thread, 1u, A_ACROSS);
    let a2 = share(thread, 2u, A_ACROSS);
    let a3 = share(thread, 3u, A_ACROSS);
    let b0 = share(thread, 0u, B_ACROSS);
    let b1 = share(thread, 1u, B_ACROSS);
    let b2 = share(thread, 2u, B_ACROSS);
    let b3 = share(thread, 3u, B_ACROSS);
    let rows0 = rows_at(product, first.x + a0.y * 4u);
    let rows1 = rows_at(product, first.x + a1.y * 4u);
    let rows2 = rows_at(product, first.x + a2.y * 4u);
    let rows3 = rows_at(product, first.x + a3.y * 4u);
    let columns0 = columns_at(product, first.y + b0.y * 4u);
    let columns1 = columns_at(product, first.y + b1.y * 4u);
    let columns2 = columns_at(product, first.y + b2.y * 4u);
    let columns3 = columns_at(product, first.y + b3.y * 4u);
    var l0 = vec4<f32>(); var r0 = vec4<f32>();
    var l1 = vec4<f32>(); var r1 = vec4<f32>();
    var l2 = vec4<f32>(); var r2 = vec4<f32>();
    var l3 = vec4<f32>(); var r3 = vec4<f32>();
    var l4 = vec4<f32>(); var r4 = vec4<f32>();
    var l5 = vec4<f32>(); var r5 = vec4<f32>();
    var l6 = vec4<f32>(); var r6 = vec4<f32>();
    var l7 = vec4<f32>(); var r7 = vec4<f32>();
    for (var k0 = steps.x; k0 < steps.y; k0 += 16u) {
        a_tile[place(a0)] = a_quad(rows0, step_of(k0 + a0.x, steps.y));
        a_tile[place(a1)] = a_quad(rows1, step_of(k0 + a1.x, steps.y));
        a_tile[place(a2)] = a_quad(rows2, step_of(k0 + a2.x, steps.y));
        a_tile[place(a3)] = a_quad(rows3, step_of(k0 + a3.x, steps.y));
        b_tile[place(b0)] = b_quad(columns0, step_of(k0 + b0.x, steps.y));
        b_tile[place(b1)] = b_quad(columns1, step_of(k0 + b1.x, steps.y));
        b_tile[place(b2)] = b_quad(columns2, step_of(k0 + b2.x, steps.y));
        b_tile[place(b3)] = b_quad(columns3, step_of(k0 + b3.x, steps.y));
        workgroupBarrier();
        for (var k = 0u; k < 16u; k += 1u) {
            let s = a_tile[k * PITCH + y];
            let t = a_tile[k * PITCH + y + 8u];
            let left = b_tile[k * PITCH + x];
            let right = b_tile[k * PITCH + x + 8u];
            l0 = fma(vec4(s.x), left, l0); r0 = fma(vec4(s.x), right, r0);
            l1 = fma(vec4(s.y), left, l1); r1 = fma(vec4(s.y), right, r1);
            l2 = fma(vec4(s.z), left, l2); r2 = fma(vec4(s.z), right, r2);
            l3 = fma(vec4(s.w), left, l3); r3 = fma(vec4(s.w), right, r3);
            l4 = fma(vec4(t.x), left, l4); r4 = fma(vec4(t.x), right, r4);
            l5 = fma(vec4(t.y), left, l5); r5 = fma(vec4(t.y), right, r5);
            l6 = fma(vec4(t.z), left, l6); r6 = fma(vec4(t.z), right, r6);
            l7 = fma(vec4(t.w), left, l7); r7 = fma(vec4(t.w), right, r7);
        }
        workgroupBarrier();
    }
    let near = results_at(product, first.y + x * 4u);
    let far = results_at(product, first.y + x * 4u + 32u);
    let row = first.x + y * 4u;
    store_live(near, far, row, l0, r0);
    store_live(near, far, row + 1u, l1, r1);
    store_live(near, far, row + 2u, l2, r2);
    store_live(near, far, row + 3u, l3, r3);
    store_live(near, far, row + 32u, l4, r4);
    store_live(near, far, row + 33u, l5, r5);
    store_live(near, far, row + 34u, l6, r6);
    store_live(near, far, row + 35u, l7, r7);
}

fn store_live(near: Results, far: Results, row: u32, left: vec4<f32>, right: vec4<f32>) {
    if (row < p.m) {
        store_row(near, far, row, left, right);
    }
}
