// matmul_cpu_tn: C = Aᵀ · B, for CPU adapters: no barrier, no workgroup memory     32 x 4·WG per workgroup
// a [K, M]  b [K, N]  ->  c [M, N]
//   repeated `batch` times; K = 0 gives zeros
// grid: see params.wgsl; surplus workgroups return; tiles_m = ceil(M / 32), tiles_n = ceil(N / (4 * WG))
// overrides: WG (threads per workgroup, along N; multiple of 8)
// requires: M % 4 == 0 and N % 4 == 0 (K is free); batch strides % 4 == 0; subgroups of at least 8;
//   K <= 250,000 on lavapipe, which ends a thread's loops after 65,535 turns in sum
#import matmul/operands
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
    let m4 = p.m / 4u;
    let a_at = batch * (p.a_batch / 4u) + min(row0 / 4u + lane % 8u, m4 - 1u);
    let b_at = batch * (p.b_batch / 4u) + col_in;
    var c0 = vec4<f32>(); var c1 = vec4<f32>(); var c2 = vec4<f32>(); var c3 = vec4<f32>();
    var c4 = vec4<f32>(); var c5 = vec4<f32>(); var c6 = vec4<f32>(); var c7 = vec4<f32>();
    var c8 = vec4<f32>(); var c9 = vec4<f32>(); var c10 = vec4<f32>(); var c11 = vec4<f32>();
    var c12 = vec4<f32>(); var c13 = vec4<f32>(); var c14 = vec4<f32>(); var c15 = vec4<f32>();
    var c16 = vec4<f32>(); var c17 = vec4<f32>(); var c18 = vec4<f32>(); var c19 = vec4<f32>();
    var c20 = vec4<f32>(); var c21 = vec4<f32>(); var c22 = vec4<f32>(); var c23 = vec4<f32>();
    var c24 = vec4<f32>(); var c25 = vec4<f32>(); var c26 = vec4<f32>(); var c27 = vec4<f32>();
    var c28 = vec4<f32>(); var c29 = vec4<f32>(); var c30 = vec4<f32>(); var c31 = vec4<f32>();
    for (var k = 0u; k < p.k; k += 4u) {
        // Steps past K add 0 * 0: both sides are masked, or an infinity at the last step would become NaN.
        let last = p.k - 1u - k;
        let k1 = k + min(1u, last);
        let k2 = k + min(2u, last);
        let k3 = k + min(3u, last);
        let a0 = read_a(a_at + k * m4);
        let a1 = select(vec4<f32>(), read_a(a_at + k1 * m4), 1u <= last);
        let a2 = select(vec4<f32>(), read_a(a_at + k2 * m4), 2u <= last);
        let a3 = select(vec4<f32>(), read_a(a_at + k3 * m4), 3u <= last);
        let b0 = read_b(b_at + k * n4);
        let b1 = select(vec4<f32>(), read_b(b_at + k1 * n4), 1u <= last);
        let b2 = select(vec4<f32>(), read_b(b_at + k2 * n4), 2u <= last);
        let b3 = select(vec4<f32>(), read_b(b_at + k3 * n4), 3u <= last);
        let s00 = subgroupBroadcast(a0, 0u);
        let s01 = subgroupBroadcast(a1, 0u);
        let s02 = subgroupBroadcast(a2, 0u);
        let s03 = subgroupBroadcast(a3, 0u);
        c0 = step4(vec4(s00.x, s01.x, s02.x, s03.x), b0, b1, b2, b3, c0);
        c1 = step4(vec4(s00.y, s01.y, s02.y, s03.y), b0, b1, b2, b3, c1);
        c2 = step4(vec4(s00.z, s01.z, s02.z, s03.z), b0, b1, b2, b3, c2);
        c3 = step4(vec4(s00.w, s01.w, s02.w, s03.w), b0, b1, b2, b3, c3);
        let s10 = subgroupBroadcast(a0, 1u);
        let s11 = subgroupBroadcast(a1, 1u);
        let s12 = subgroupBroadcast(a2, 1u);
        let s13 = subgroupBroadcast(a3, 1u);
        c4 = step4(vec4(s10.x, s11.x, s12.x, s13.x), b0, b1, b2, b3, c4);
        c5 = step4(vec4(s10.y, s11.y, s12.y, s13.y), b0, b1, b2, b3, c5);
        c6 = step4(vec4(s10.z, s11.z, s12.z, s13.z), b0, b1, b2, b3, c6);
        c7 = step4(vec4(s10.w, s11.w, s12.w, s13.w), b0, b1, b2, b3, c7);
        let s20 = subgroupBroadcast(a0, 2u);
        let s21 = subgroupBroadcast(a1, 2u);
        let s22 = subgroupBroadcast(a2, 2u);
        let s23 = subgroupBroadcast(a3, 2u);
        c8 = step4(vec4(s20.x, s21.x, s22.x, s23.x), b0, b1, b2, b3, c8);
        c9 = step4(vec4(s20.y, s21.y, s22.y, s23.y), b0, b1, b2, b3, c9);
        c10 = step4(vec4(s20.z, s21.z, s22.z, s23.z), b0, b1, b2, b3, c10);
        c11 = step4(vec4(s20.w, s21.w, s22.w, s23.w), b0, b1, b2, b3, c11);
        let s30 = subgroupBroadcast(a0, 3u);
        let s31 = subgroupBroadcast(a1, 3u);
        let s32 = subgroupBroadcast(a2, 3u);
        let s33 = subgroupBroadcast(a3, 3u);
        c12 = step4(vec4(s30.x, s31.x, s32.x, s33.x), b0, b1, b2, b3, c12);
        c13 = step4(vec4(s30.y, s31.y, s32.y, s33.y), b0, b1, b2, b3, c13);
        c14 = step4(vec4(s30.z, s31.z, s32.z, s33.z), b0, b1, b2, b3, c14);
        c15 = step4(vec4(s30.w, s31.w, s32.w, s33.w), b0, b1, b2, b3, c15);
        let s40 = subgroupBroadcast(a0, 4u);
        let s41 = subgroupBroadcast(a1, 4u);
        let s42 = subgroupBroadcast(a2, 4u);
        let s43 = subgroupBroadcast(a3, 4u);
        c16 = step4(vec4(s40.x, s41.x, s42.x, s43.x), b0, b1, b2, b3, c16);
        c17 = step4(vec4(s40.y, s41.y, s42.y, s43.y), b0, b1, b2, b3, c17);
        c18 = step4(vec4(s40.z, s41.z, s42.z, s43.z), b0, b1, b2, b3, c18);
        c19 = step4(vec4(s40.w, s41.w, s42.w, s43.w), b0, b1, b2, b3, c19);
        let s50 = subgroupBroadcast(a0, 5u);
        let s51 = subgroupBroadcast(a1, 5u);
        let s52 = subgroupBroadcast(a2, 5u);
        let s53 = subgroupBroadcast(a3, 5u);
        c20 = step4(vec4(s50.x, s51.x, s52.x, s53.x), b0, b1, b2, b3, c20);
        c21 = step4(vec4(s50.y, s51.y, s52.y, s53.y), b0, b1, b2, b3, c21);
        c22 = step4(vec4(s50.z, s51.z, s52.z, s53.z), b0, b1, b2, b3, c22);
        c23 = step4(vec4(s50.w, s51.w, s52.w, s53.w), b0, b1, b2, b3, c23);
        let s60 = subgroupBroadcast(a0, 6u);
        let s61 = subgroupBroadcast(a1, 6u);
        let s62 = subgroupBroadcast(a2, 6u);
        let s63 = subgroupBroadcast(a3, 6u);
        c24 = step4(vec4(s60.x, s61.x, s62.x, s63.x), b0, b1, b2, b3, c24);
        c25 = step4(vec4(s60.y, s61.y, s62.y, s63.y), b0, b1, b2, b3, c25);
        c26 = step4(vec4(s60.z, s61.z, s62.z, s63.z), b0, b1, b2, b3, c26);
        c27 = step4(vec4(s60.w, s61.w, s62.w, s63.w), b0, b1, b2, b3, c27);
        let s70 = subgroupBroadcast(a0, 7u);
        let s71 = subgroupBroadcast(a1, 7u);
        let s72 = subgroupBroadcast(a2, 7u);
        let s73 = subgroupBroadcast(a3, 7u);
        c28 = step4(vec4(s70.x, s71.x, s72.x, s73.x), b0, b1, b2, b3, c28);
        c29 = step4(vec4(s70.y, s71.y, s72.y, s73.y), b0, b1, b2, b3, c29);
        c30 = step4(vec4(s70.z, s71.z, s72.z, s73.z), b0, b1, b2, b3, c30);
        c31 = step4(vec4(s70.w, s71.w, s72.w, s73.w), b0, b1, b2, b3, c31);
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
