// matmul_tiled: C = op(A) · op(B), any sizes, for GPUs     64 x 64 per workgroup of 64 threads, 8 x 8 each
// a [M, K], or [K, M] with TRANSPOSE_A   b [K, N], or [N, K] with TRANSPOSE_B   ->   c [M, N]
//   repeated `batch` times; K = 0 gives zeros
// grid: see prelude/matmul_params; surplus workgroups return; tiles_m = ceil(M / 64), tiles_n = ceil(N / 64)
// overrides: TRANSPOSE_A, TRANSPOSE_B
// requires: 8704 bytes of workgroup memory

override TRANSPOSE_A: bool = false;
override TRANSPOSE_B: bool = false;

// Sixteen steps of K, sixteen quads of rows (of columns) each; a row of 17 spreads a store over all banks.
const PITCH = 17u;
var<workgroup> a_tile: array<vec4<f32>, 272>;
var<workgroup> b_tile: array<vec4<f32>, 272>;

// Four neighbouring rows of A at one k. Rows past the edge repeat the last one and are never stored; steps past
// K are zero on both sides.
fn a_quad(base: u32, row: u32, k: u32) -> vec4<f32> {
    let at = min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(p.m - 1u));
    let step = min(k, p.k - 1u);
    var i = base + at * p.k + step;
    if (TRANSPOSE_A) {
        i = base + at + step * p.m;
    }
    return select(vec4<f32>(), read_four_a(i), k < p.k);
}

fn b_quad(base: u32, col: u32, k: u32) -> vec4<f32> {
    let at = min(vec4(col) + vec4(0u, 1u, 2u, 3u), vec4(p.n - 1u));
    let step = min(k, p.k - 1u);
    var i = base + at + step * p.n;
    if (TRANSPOSE_B) {
        i = base + at * p.k + step;
    }
    return select(vec4<f32>(), read_four_b(i), k < p.k);
}

fn store_quad(at: u32, col: u32, v: vec4<f32>) {
    let across = col + vec4(0u, 1u, 2u, 3u);
    store(at + across, across < vec4(p.n), v);
}

fn store_row(base: u32, row: u32, col: u32, left: vec4<f32>, right: vec4<f32>) {
    if (row < p.m) {
        store_quad(base + row * p.n, col, left);
        store_quad(base + row * p.n, col + 32u, right);
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = wg.y * p.grid_x + wg.x;
    let per_matrix = p.tiles_m * p.tiles_n;
    let batch = tile / per_matrix;
    if (batch >= p.batch) {
        return;
    }
    let row0 = tile % per_matrix / p.tiles_n * 64u;
    let col0 = tile % per_matrix % p.tiles_n * 64u;
    let a_base = batch * p.a_batch;
    let b_base = batch * p.b_batch;
    // A thread owns row quads y and y + 8, column quads x and x + 8.
    let x = thread % 8u;
    let y = thread / 8u;
    // While loading, neighbouring threads follow the dimension that is contiguous in memory.
    let inner = thread % 16u;
    let outer = thread / 16u;
    var l0 = vec4<f32>(); var r0 = vec4<f32>();
    var l1 = vec4<f32>(); var r1 = vec4<f32>();
    var l2 = vec4<f32>(); var r2 = vec4<f32>();
    var l3 = vec4<f32>(); var r3 = vec4<f32>();
    var l4 = vec4<f32>(); var r4 = vec4<f32>();
    var l5 = vec4<f32>(); var r5 = vec4<f32>();
    var l6 = vec4<f32>(); var r6 = vec4<f32>();
    var l7 = vec4<f32>(); var r7 = vec4<f32>();
    for (var k0 = 0u; k0 < p.k; k0 += 16u) {
        for (var i = outer; i < 16u; i += 4u) {
            let a_k = select(inner, i, TRANSPOSE_A);
            let a_q = select(i, inner, TRANSPOSE_A);
            a_tile[a_k * PITCH + a_q] = a_quad(a_base, row0 + a_q * 4u, k0 + a_k);
            let b_k = select(i, inner, TRANSPOSE_B);
            let b_q = select(inner, i, TRANSPOSE_B);
            b_tile[b_k * PITCH + b_q] = b_quad(b_base, col0 + b_q * 4u, k0 + b_k);
        }
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
    let c_base = batch * p.c_batch;
    let row = row0 + y * 4u;
    let col = col0 + x * 4u;
    store_row(c_base, row + 0u, col, l0, r0);
    store_row(c_base, row + 1u, col, l1, r1);
    store_row(c_base, row + 2u, col, l2, r2);
    store_row(c_base, row + 3u, col, l3, r3);
    store_row(c_base, row + 32u, col, l4, r4);
    store_row(c_base, row + 33u, col, l5, r5);
    store_row(c_base, row + 34u, col, l6, r6);
    store_row(c_base, row + 35u, col, l7, r7);
}
