// matmul_cpu: C = A · B or A · Bᵀ, for CPU adapters: no barrier, no workgroup memory     32 x 4·WG per workgroup
// a [M, K]  b [K, N], or [N, K] where B is transposed (b_layout.wgsl)  ->  c [M, N]
//   repeated `batch` times; K = 0 gives zeros
// grid: see params.wgsl; surplus workgroups return; tiles_m = ceil(M / 32), tiles_n = ceil(N / (4 * WG))
// overrides: WG (threads per workgroup, along N; multiple of 8)
// requires: K % 4 == 0 and N % 4 == 0; batch strides % 4 == 0; subgroups of at least 8;
//   K <= 250,000 on lavapipe, which ends a thread's loops after 65,535 iterations in total
#import matmul/operands
#import matmul/b_layout
override WG: u32 = 8u;

// Software adapters gather every load lane by lane, so loads decide the speed: each lane fetches other values
// of A and subgroupBroadcast hands them round, which makes one load of A serve eight lanes. Rows past the
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
    let row0 = tile % per_matrix / p.tiles_n * 32u;
    let n4 = p.n / 4u;
    let col = tile % per_matrix % p.tiles_n * WG + local.x;
    let col_in = min(col, n4 - 1u);
    let k4 = p.k / 4u;
    let a_base = batch * (p.a_batch / 4u);
    let a0_at = a_base + min(row0 + lane % 8u, p.m - 1u) * k4;
    let a1_at = a_base + min(row0 + 8u + lane % 8u, p.m - 1u) * k4;
    let a2_at = a_base + min(row0 + 16u + lane % 8u, p.m - 1u) * k4;
    let a3_at = a_base + min(row0 + 24u + lane % 8u, p.m - 1u) * k4;
    let b_start = batch * (p.b_batch / 4u);
    var c0 = vec4<f32>(); var c1 = vec4<f32>(); var c2 = vec4<f32>(); var c3 = vec4<f32>();
    var c4 = vec4<f32>(); var c5 = vec4<f32>(); var c6 = vec4<f32>(); var c7 = vec4<f32>();
    var c8 = vec4<f32>(); var c9 = vec4<f32>(); var c10 = vec4<f32>(); var c11 = vec4<f32>();
    var c12 = vec4<f32>(); var c13 = vec4<f32>(); var c14 = vec4<f32>(); var c15 = vec4<f32>();
    var c16 = vec4<f32>(); var c17 = vec4<f32>(); var c18 = vec4<f32>(); var c19 = vec4<f32>();
    var c20 = vec4<f32>(); var c21 = vec4<f32>(); var c22 = vec4<f32>(); var c23 = vec4<f32>();
    var c24 = vec4<f32>(); var c25 = vec4<f32>(); var c26 = vec4<f32>(); var c27 = vec4<f32>();
    var c28 = vec4<f32>(); var c29 = vec4<f32>(); var c30 = vec4<f32>(); var c31 = vec4<f32>();
    for (var k = 0u; k < k4; k += 1u) {
        let a0 = read_a(a0_at + k);
        let a1 = read_a(a1_at + k);
        let a2 = read_a(a2_at + k);
        let a3 = read_a(a3_at + k);
        let steps = steps_of_b(b_start, col_in, k);
        let b0 = steps.b0;
        let b1 = steps.b1;
        let b2 = steps.b2;
        let b3 = steps.b3;
        c0 = step4(subgroupBroadcast(a0, 0u), b0, b1, b2, b3, c0);
        c1 = step4(subgroupBroadcast(a0, 1u), b0, b1, b2, b3, c1);
        c2 = step4(subgroupBroadcast(a0, 2u), b0, b1, b2, b3, c2);
        c3 = step4(subgroupBroadcast(a0, 3u), b0, b1, b2, b3, c3);
        c4 = step4(subgroupBroadcast(a0, 4u), b0, b1, b2, b3, c4);
        c5 = step4(subgroupBroadcast(a0, 5u), b0, b1, b2, b3, c5);
        c6 = step4(subgroupBroadcast(a0, 6u), b0, b1, b2, b3, c6);
        c7 = step4(subgroupBroadcast(a0, 7u), b0, b1, b2, b3, c7);
        c8 = step4(subgroupBroadcast(a1, 0u), b0, b1, b2, b3, c8);
        c9 = step4(subgroupBroadcast(a1, 1u), b0, b1, b2, b3, c9);
        c10 = step4(subgroupBroadcast(a1, 2u), b0, b1, b2, b3, c10);
        c11 = step4(subgroupBroadcast(a1, 3u), b0, b1, b2, b3, c11);
        c12 = step4(subgroupBroadcast(a1, 4u), b0, b1, b2, b3, c12);
        c13 = step4(subgroupBroadcast(a1, 5u), b0, b1, b2, b3, c13);
        c14 = step4(subgroupBroadcast(a1, 6u), b0, b1, b2, b3, c14);
        c15 = step4(subgroupBroadcast(a1, 7u), b0, b1, b2, b3, c15);
        c16 = step4(subgroupBroadcast(a2, 0u), b0, b1, b2, b3, c16);
        c17 = step4(subgroupBroadcast(a2, 1u), b0, b1, b2, b3, c17);
        c18 = step4(subgroupBroadcast(a2, 2u), b0, b1, b2, b3, c18);
        c19 = step4(subgroupBroadcast(a2, 3u), b0, b1, b2, b3, c19);
        c20 = step4(subgroupBroadcast(a2, 4u), b0, b1, b2, b3, c20);
        c21 = step4(subgroupBroadcast(a2, 5u), b0, b1, b2, b3, c21);
        c22 = step4(subgroupBroadcast(a2, 6u), b0, b1, b2, b3, c22);
        c23 = step4(subgroupBroadcast(a2, 7u), b0, b1, b2, b3, c23);
        c24 = step4(subgroupBroadcast(a3, 0u), b0, b1, b2, b3, c24);
        c25 = step4(subgroupBroadcast(a3, 1u), b0, b1, b2, b3, c25);
        c26 = step4(subgroupBroadcast(a3, 2u), b0, b1, b2, b3, c26);
        c27 = step4(subgroupBroadcast(a3, 3u), b0, b1, b2, b3, c27);
        c28 = step4(subgroupBroadcast(a3, 4u), b0, b1, b2, b3, c28);
        c29 = step4(subgroupBroadcast(a3, 5u), b0, b1, b2, b3, c29);
        c30 = step4(subgroupBroadcast(a3, 6u), b0, b1, b2, b3, c30);
        c31 = step4(subgroupBroadcast(a3, 7u), b0, b1, b2, b3, c31);
    }
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let c_at = batch * (p.c_batch / 4u) + col;
    for (var row = row0; row < min(row0 + 32u, p.m); row += 1u) {
        if (col < n4) {
            store(c_at + row * n4, c0);
        }
        c0 = c1; c1 = c2; c2 = c3; c3 = c4; c4 = c5; c5 = c6; c6 = c7; c7 = c8; c8 = c9; c9 = c10; c10 = c11;
        c11 = c12; c12 = c13; c13 = c14; c14 = c15; c15 = c16; c16 = c17; c17 = c18; c18 = c19; c19 = c20;
        c20 = c21; c21 = c22; c22 = c23; c23 = c24; c24 = c25; c25 = c26; c26 = c27; c27 = c28; c28 = c29;
        c29 = c30; c30 = c31;
    }
}
