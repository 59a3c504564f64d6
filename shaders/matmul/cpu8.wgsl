// Matrix products of 8 rows a tile on CPU adapters.
#import matmul/operands
#if TN
// matmul_cpu8_tn: C = Aᵀ · B, for CPU adapters: no barrier, no workgroup memory     8 x 4·WG per workgroup
// a [K, M]  b [K, N]  ->  c [M, N]
//   repeated `batch` times; K = 0 gives zeros
// grid: see params.wgsl; surplus workgroups return; tiles_m = ceil(M / 8), tiles_n = ceil(N / (4 * WG))
// overrides: WG (threads per workgroup, along N; multiple of 4)
// requires: M % 4 == 0 and N % 4 == 0 (K is free); batch strides % 4 == 0; subgroups of at least 4;
//   K <= 250,000 on lavapipe, which ends a thread's loops after 65,535 turns in sum
override WG: u32 = 8u;

// Software adapters gather every load lane by lane, so loads decide the speed: each lane fetches other values
// of A and subgroupBroadcast hands them round, which makes one load of A serve four lanes. Rows past the
// edge repeat the last one and are not stored. No branch surrounds a broadcast: all lanes run it.
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let tile = wg.y * p.grid_x + wg.x;
    let per_matrix = p.tiles_m * p.tiles_n;
    let batch = tile / per_matrix;
    if (batch >= p.batch) {
        return;
    }
    let row0 = tile % per_matrix / p.tiles_n * 8u;
    let n4 = p.n / 4u;
    let col = tile % per_matrix % p.tiles_n * WG + local.x;
    let col_in = min(col, n4 - 1u);
    let m4 = p.m / 4u;
    let a_at = batch * (p.a_batch / 4u) + min(row0 / 4u + lane % 2u, m4 - 1u);
    let b_at = batch * (p.b_batch / 4u) + col_in;
    // Two quads of rows need two lanes: the other two fetch the next step of K.
    let ahead = lane % 4u / 2u;
    var c0 = vec4<f32>(); var c1 = vec4<f32>(); var c2 = vec4<f32>(); var c3 = vec4<f32>();
    var c4 = vec4<f32>(); var c5 = vec4<f32>(); var c6 = vec4<f32>(); var c7 = vec4<f32>();
    for (var k = 0u; k < p.k; k += 4u) {
        // Steps past K add 0 * 0: both sides are masked, or an infinity at the last step would become NaN.
        let last = p.k - 1u - k;
        let k1 = k + min(1u, last);
        let k2 = k + min(2u, last);
        let k3 = k + min(3u, last);
        let a0 = select(vec4<f32>(), read_a(a_at + (k + min(ahead, last)) * m4), ahead <= last);
        let a1 = select(vec4<f32>(), read_a(a_at + (k + min(ahead + 2u, last)) * m4), ahead + 2u <= last);
        let b0 = read_b(b_at + k * n4);
        let b1 = select(vec4<f32>(), read_b(b_at + k1 * n4), 1u <= last);
        let b2 = select(vec4<f32>(), read_b(b_at + k2 * n4), 2u <= last);
        let b3 = select(vec4<f32>(), read_b(b_at + k3 * n4), 3u <= last);
        let s00 = subgroupBroadcast(a0, 0u);
        let s01 = subgroupBroadcast(a0, 2u);
        let s02 = subgroupBroadcast(a1, 0u);
        let s03 = subgroupBroadcast(a1, 2u);
        c0 = step4(vec4(s00.x, s01.x, s02.x, s03.x), b0, b1, b2, b3, c0);
        c1 = step4(vec4(s00.y, s01.y, s02.y, s03.y), b0, b1, b2, b3, c1);
        c2 = step4(vec4(s00.z, s01.z, s02.z, s03.z), b0, b1, b2, b3, c2);
        c3 = step4(vec4(s00.w, s01.w, s02.w, s03.w), b0, b1, b2, b3, c3);
        let s10 = subgroupBroadcast(a0, 1u);
        let s11 = subgroupBroadcast(a0, 3u);
        let s12 = subgroupBroadcast(a1, 1u);
        let s13 = subgroupBroadcast(a1, 3u);
        c4 = step4(vec4(s10.x, s11.x, s12.x, s13.x), b0, b1, b2, b3, c4);
        c5 = step4(vec4(s10.y, s11.y, s12.y, s13.y), b0, b1, b2, b3, c5);
        c6 = step4(vec4(s10.z, s11.z, s12.z, s13.z), b0, b1, b2, b3, c6);
        c7 = step4(vec4(s10.w, s11.w, s12.w, s13.w), b0, b1, b2, b3, c7);
    }
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let c_at = batch * (p.c_batch / 4u) + col;
    for (var row = row0; row < min(row0 + 8u, p.m); row += 1u) {
        if (col < n4) {
            store(c_at + row * n4, c0);
        }
        c0 = c1; c1 = c2; c2 = c3; c3 = c4; c4 = c5; c5 = c6; c6 = c7;
    }
}
#else
#import matmul/b_layout
// matmul_cpu8: C = A · B or A · Bᵀ, for CPU adapters: no barrier, no workgroup memory     8 x 4·WG per workgroup
// a [M, K]  b [K, N] behind matmul_b_rows, [N, K] behind matmul_b_columns  ->  c [M, N]
//   repeated `batch` times; K = 0 gives zeros
// grid: see params.wgsl; surplus workgroups return; tiles_m = ceil(M / 8), tiles_n = ceil(N / (4 * WG))
// overrides: WG (threads per workgroup, along N; multiple of 4)
// requires: K % 4 == 0 and N % 4 == 0; batch strides % 4 == 0; subgroups of at least 4;
//   K <= 250,000 on lavapipe, which ends a thread's loops after 65,535 turns in sum
override WG: u32 = 8u;

// Software adapters gather every load lane by lane, so loads decide the speed: each lane fetches other values
// of A and subgroupBroadcast hands them round, which makes one load of A serve four lanes. Rows past the
// edge repeat the last one and are not stored. No branch surrounds a broadcast: all lanes run it.
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let tile = wg.y * p.grid_x + wg.x;
    let per_matrix = p.tiles_m * p.tiles_n;
    let batch = tile / per_matrix;
    if (batch >= p.batch) {
        return;
    }
    let row0 = tile % per_matrix / p.tiles_n * 8u;
    let n4 = p.n / 4u;
    let col = tile % per_matrix % p.tiles_n * WG + local.x;
    let col_in = min(col, n4 - 1u);
    let k4 = p.k / 4u;
    let a_base = batch * (p.a_batch / 4u);
    let a0_at = a_base + min(row0 + lane % 4u, p.m - 1u) * k4;
    let a1_at = a_base + min(row0 + 4u + lane % 4u, p.m - 1u) * k4;
    let b_start = batch * (p.b_batch / 4u);
    var c0 = vec4<f32>(); var c1 = vec4<f32>(); var c2 = vec4<f32>(); var c3 = vec4<f32>();
    var c4 = vec4<f32>(); var c5 = vec4<f32>(); var c6 = vec4<f32>(); var c7 = vec4<f32>();
    for (var k = 0u; k < k4; k += 1u) {
        let a0 = read_a(a0_at + k);
        let a1 = read_a(a1_at + k);
        let steps = steps_of_b(b_start, col_in, k);
        let b0 = steps.b0;
        let b1 = steps.b1;
        let b2 = steps.b2;
        let b3 = steps.b3;
        c0 = step4(subgroupBroadcast(a0, 0u), b0, b1, b2, b3, c0);
        c1 = step4(subgroupBroadcast(a0, 1u), b0, b1, b2, b3, c1);
        c2 = step4(subgroupBroadcast(a0, 2u), b0, b1, b2, b3, c2);
        c3 = step4(subgroupBroadcast(a0, 3u), b0, b1, b2, b3, c3);
        c4 = step4(subgroupBroadcast(a1, 0u), b0, b1, b2, b3, c4);
        c5 = step4(subgroupBroadcast(a1, 1u), b0, b1, b2, b3, c5);
        c6 = step4(subgroupBroadcast(a1, 2u), b0, b1, b2, b3, c6);
        c7 = step4(subgroupBroadcast(a1, 3u), b0, b1, b2, b3, c7);
    }
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let c_at = batch * (p.c_batch / 4u) + col;
    for (var row = row0; row < min(row0 + 8u, p.m); row += 1u) {
        if (col < n4) {
            store(c_at + row * n4, c0);
        }
        c0 = c1; c1 = c2; c2 = c3; c3 = c4; c4 = c5; c5 = c6; c6 = c7;
    }
}
#endif
