// Tiles of 128 x 128 in workgroup memory.
#if MATMUL
#import matmul/blocks
#elif WEIGHT
#import conv/weight_operands
#else
#import conv/operands
#endif
#if !MATMUL
// Blocks for tile128, quad by quad.
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

// tile128: matrix products, for discrete GPUs     128 x 128 results per workgroup of 256 threads, 8 x 8 each
// The imported source of the operands is that of tile64; vec4s are asked for in blocks of four steps.
// grid: tiles_m * tiles_n * products() workgroups, folded: tile = wg.y * grid_x + wg.x; surplus workgroups return
//   tiles_m = ceil(m / 128), tiles_n = ceil(columns / 128)
// requires: 16,384 bytes of workgroup memory

// Sixteen steps, 32 quads of rows (of columns) each.
var<workgroup> a_tile: array<vec4<f32>, 512>;
var<workgroup> b_tile: array<vec4<f32>, 512>;

// Where quad `q` of step `k` lies. Every fourth step quads trade places in pairs, so that blocks which are transposed on
// their way here, of neighbouring threads, spread over all banks: padding would do that too, and take more than 16 KiB.
fn place(k: u32, q: u32) -> u32 {
    return k * 32u + (q ^ (k / 4u * 2u));
}

// Four steps for four neighbouring rows (columns): a quad for each step.
struct Block {
    s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>,
}

// Which four steps and which quad a thread fetches.
fn share(thread: u32, across: bool) -> vec2<u32> {
    return select(vec2(thread % 4u, thread / 4u), vec2(thread / 32u, thread % 32u), across);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = wg.y * p.grid_x + wg.x;
    let product = tile / (p.tiles_m * p.tiles_n);
    if (product >= products()) {
        return;
    }
    let first = corner(tile % (p.tiles_m * p.tiles_n), 128u);
    let steps = steps_of(product);
    // Half of the threads fetch A, the others B. The loads of the next iteration are in flight while this one computes.
    let fetches_a = thread < 128u;
    let own = share(thread % 128u, select(B_ACROSS, A_ACROSS, fetches_a));
    let rows = rows_at(product, first.x + own.y * 4u);
    let columns = columns_at(product, first.y + own.y * 4u);
    let own_k = own.x * 4u;
    var next = Block();
    if (steps.x < steps.y) {
        if (fetches_a) {
            next = a_block(rows, steps.x + own_k, steps.y);
        } else {
            next = b_block(columns, steps.x + own_k, steps.y);
        }
    }
    // A thread owns row quads y and y + 16, column quads x and x + 16; 32 neighbours 4 x 8 of them.
    let x = thread % 8u + thread / 32u % 2u * 8u;
    let y = thread / 8u % 4u + thread / 64u * 4u;
#repeat i 8
    var l$i = vec4<f32>();
    var r$i = vec4<f32>();
#endrepeat
    for (var k0 = steps.x; k0 < steps.y; k0 += 16u) {
        if (fetches_a) {
            a_tile[place(own_k, own.y)] = next.s0;
            a_tile[place(own_k + 1u, own.y)] = next.s1;
            a_tile[place(own_k + 2u, own.y)] = next.s2;
            a_tile[place(own_k + 3u, own.y)] = next.s3;
        } else {
            b_tile[place(own_k, own.y)] = next.s0;
            b_tile[place(own_k + 1u, own.y)] = next.s1;
            b_tile[place(own_k + 2u, own.y)] = next.s2;
            b_tile[place(own_k + 3u, own.y)] = next.s3;
        }
        workgroupBarrier();
        if (k0 + 16u < steps.y) {
            if (fetches_a) {
                next = a_block(rows, k0 + 16u + own_k, steps.y);
            } else {
                next = b_block(columns, k0 + 16u + own_k, steps.y);
            }
        }
        for (var k = 0u; k < 16u; k += 1u) {
            let s0 = a_tile[place(k, y)];
            let s1 = a_tile[place(k, y + 16u)];
            let left = b_tile[place(k, x)];
            let right = b_tile[place(k, x + 16u)];
#repeat i 8
            l$i = fma(vec4(s$(i / 4)[$(i % 4)]), left, l$i);
            r$i = fma(vec4(s$(i / 4)[$(i % 4)]), right, r$i);
#endrepeat
        }
        workgroupBarrier();
    }
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let near = results_at(product, first.y + x * 4u);
    let far = results_at(product, first.y + x * 4u + 64u);
    for (var i = 0u; i < 8u; i += 1u) {
        let row = first.x + i / 4u * 64u + y * 4u + i % 4u;
        if (row < p.m) {
            store_row(near, far, row, l0, r0);
        }
#repeat i 7
        l$i = l$(i + 1);
        r$i = r$(i + 1);
#endrepeat
    }
}
