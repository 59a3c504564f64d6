// matmul_any: C = op(A) · op(B), any sizes and strides, any adapter     4 x 4 elements per thread
// a: A(i, k) at i * a_row + k * a_col   b: B(k, j) at k * b_row + j * b_col   ->   c [M, N], row-major
//   repeated `batch` times; K = 0 gives zeros
// grid: see params.wgsl; surplus workgroups return; tiles_m = ceil(M / (4 * LANES_M)), tiles_n = ceil(N / (4 * LANES_N))
// overrides: LANES_N, LANES_M (threads per workgroup along N and M)
// requires: K <= 250,000 on lavapipe, which ends a thread's loops after 65,535 iterations in all
#import matmul/operands

override LANES_N: u32 = 8u;
override LANES_M: u32 = 8u;

// A thread's columns lie LANES_N apart, so that neighbouring lanes read and write neighbouring elements.
// Rows and columns past the edge repeat the last one and are not stored.
@compute @workgroup_size(LANES_N, LANES_M)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let tile = wg.y * p.grid_x + wg.x;
    let per_matrix = p.tiles_m * p.tiles_n;
    let product = tile / per_matrix;
    if (product >= p.batch * p.parts) {
        return;
    }
    let batch = product % p.batch;
    let first = product / p.batch * p.part_len;
    let end = min(first + p.part_len, p.k);
    let row0 = (tile % per_matrix / p.tiles_n * LANES_M + local.y) * 4u;
    let col = tile % per_matrix % p.tiles_n * 4u * LANES_N + local.x;
    let a_base = batch * p.a_batch;
    let a0_at = a_base + min(row0, p.m - 1u) * p.a_row;
    let a1_at = a_base + min(row0 + 1u, p.m - 1u) * p.a_row;
    let a2_at = a_base + min(row0 + 2u, p.m - 1u) * p.a_row;
    let a3_at = a_base + min(row0 + 3u, p.m - 1u) * p.a_row;
    let b_base = batch * p.b_batch;
    let across = col + LANES_N * vec4(0u, 1u, 2u, 3u);
    let b_at = b_base + min(across, vec4(p.n - 1u)) * p.b_col;
    var c0 = vec4<f32>(); var c1 = vec4<f32>(); var c2 = vec4<f32>(); var c3 = vec4<f32>();
    for (var k = first; k < end; k += 4u) {
        // Steps past the end add 0 * 0: both sides are masked, or an infinity at the last step would become NaN.
        let last = end - 1u - k;
        let live = vec4(true, 1u <= last, 2u <= last, 3u <= last);
        let steps = k + min(vec4(0u, 1u, 2u, 3u), vec4(last));
        let a_k = steps * p.a_col;
        let b_k = steps * p.b_row;
        let t0 = read_four_b(b_at + b_k.x);
        let t1 = read_four_b(b_at + b_k.y);
        let t2 = read_four_b(b_at + b_k.z);
        let t3 = read_four_b(b_at + b_k.w);
        let b0 = select(vec4<f32>(), t0, live.x);
        let b1 = select(vec4<f32>(), t1, live.y);
        let b2 = select(vec4<f32>(), t2, live.z);
        let b3 = select(vec4<f32>(), t3, live.w);
        let r0 = read_four_a(a0_at + a_k);
        let r1 = read_four_a(a1_at + a_k);
        let r2 = read_four_a(a2_at + a_k);
        let r3 = read_four_a(a3_at + a_k);
        c0 = step4(select(vec4<f32>(), r0, live), b0, b1, b2, b3, c0);
        c1 = step4(select(vec4<f32>(), r1, live), b0, b1, b2, b3, c1);
        c2 = step4(select(vec4<f32>(), r2, live), b0, b1, b2, b3, c2);
        c3 = step4(select(vec4<f32>(), r3, live), b0, b1, b2, b3, c3);
    }
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let c_at = product * p.c_batch + across;
    for (var row = row0; row < min(row0 + 4u, p.m); row += 1u) {
        store(c_at + row * p.n, across < vec4(p.n), c0);
        c0 = c1; c1 = c2; c2 = c3;
    }
}
