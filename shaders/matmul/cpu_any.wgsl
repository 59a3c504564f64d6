// matmul_cpu_any: C = op(A) · op(B), any sizes and strides, for CPU adapters: no barrier, no workgroup memory
// a: A(i, k) at i * a_row + k * a_col   b: B(k, j) at k * b_row + j * b_col   ->   c [M, N], row-major
//   repeated `batch` times; K = 0 gives zeros
// grid: see params.wgsl; surplus workgroups return; tiles_m = ceil(M / 32), tiles_n = ceil(N / (2 * WG))
// overrides: WG (threads per workgroup, along N; multiple of 8)
// requires: subgroups of at least LANES;
//   K <= 130,000 on lavapipe, which ends a thread's loops after 65,535 turns in sum
#import matmul/operands
#import common/share

override WG: u32 = 8u;

// Two steps of K of one row of A.
alias Row = vec2<f32>;

// Where the i-th row that a lane reads begins. Rows past the edge repeat the last one and are not stored.
fn row_at(base: u32, row0: u32, lane: u32, i: u32) -> u32 {
    return base + min(row0 + i * LANES + lane % LANES, p.m - 1u) * p.a_row;
}

fn two_of_a(at: vec2<u32>) -> Row { return vec2(read_a(at.x), read_a(at.y)); }
fn two_of_b(at: vec2<u32>) -> vec2<f32> { return vec2(read_b(at.x), read_b(at.y)); }

// Two steps for one row of the tile, in the order of K.
fn step2(s: Row, b0: vec2<f32>, b1: vec2<f32>, acc: vec2<f32>) -> vec2<f32> {
    return fma(vec2(s.y), b1, fma(vec2(s.x), b0, acc));
}

// Software adapters gather every load lane by lane, so loads decide the speed: each lane fetches other rows of A and
// hands them round. No branch surrounds a broadcast: all lanes run it.
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
    let col = tile % per_matrix % p.tiles_n * 2u * WG + local.x;
    let a_base = batch * p.a_batch;
    let at0 = row_at(a_base, row0, lane, 0u);
    let at1 = row_at(a_base, row0, lane, 1u);
    let at2 = row_at(a_base, row0, lane, 2u);
    let at3 = row_at(a_base, row0, lane, 3u);
    let b_base = batch * p.b_batch;
    let b_at = b_base + min(vec2(col, col + WG), vec2(p.n - 1u)) * p.b_col;
    var c0 = vec2<f32>(); var c1 = vec2<f32>(); var c2 = vec2<f32>(); var c3 = vec2<f32>();
    var c4 = vec2<f32>(); var c5 = vec2<f32>(); var c6 = vec2<f32>(); var c7 = vec2<f32>();
    var c8 = vec2<f32>(); var c9 = vec2<f32>(); var c10 = vec2<f32>(); var c11 = vec2<f32>();
    var c12 = vec2<f32>(); var c13 = vec2<f32>(); var c14 = vec2<f32>(); var c15 = vec2<f32>();
    var c16 = vec2<f32>(); var c17 = vec2<f32>(); var c18 = vec2<f32>(); var c19 = vec2<f32>();
    var c20 = vec2<f32>(); var c21 = vec2<f32>(); var c22 = vec2<f32>(); var c23 = vec2<f32>();
    var c24 = vec2<f32>(); var c25 = vec2<f32>(); var c26 = vec2<f32>(); var c27 = vec2<f32>();
    var c28 = vec2<f32>(); var c29 = vec2<f32>(); var c30 = vec2<f32>(); var c31 = vec2<f32>();
    for (var k = 0u; k < p.k; k += 2u) {
        // A step past K adds 0 * 0: both sides are masked, or an infinity at the last step would become NaN.
        let is_live = k + 1u < p.k;
        let live = vec2(true, is_live);
        let steps = vec2(k, select(k, k + 1u, is_live));
        let a_k = steps * p.a_col;
        let b_k = steps * p.b_row;
        var rows: Shared;
        rows.v0 = select(Row(), two_of_a(at0 + a_k), live);
        rows.v1 = select(Row(), two_of_a(at1 + a_k), live);
        rows.v2 = select(Row(), two_of_a(at2 + a_k), live);
        rows.v3 = select(Row(), two_of_a(at3 + a_k), live);
        let b0 = two_of_b(b_at + b_k.x);
        let b1 = select(vec2<f32>(), two_of_b(b_at + b_k.y), is_live);
        c0 = step2(shared0(rows), b0, b1, c0);
        c1 = step2(shared1(rows), b0, b1, c1);
        c2 = step2(shared2(rows), b0, b1, c2);
        c3 = step2(shared3(rows), b0, b1, c3);
        c4 = step2(shared4(rows), b0, b1, c4);
        c5 = step2(shared5(rows), b0, b1, c5);
        c6 = step2(shared6(rows), b0, b1, c6);
        c7 = step2(shared7(rows), b0, b1, c7);
        c8 = step2(shared8(rows), b0, b1, c8);
        c9 = step2(shared9(rows), b0, b1, c9);
        c10 = step2(shared10(rows), b0, b1, c10);
        c11 = step2(shared11(rows), b0, b1, c11);
        c12 = step2(shared12(rows), b0, b1, c12);
        c13 = step2(shared13(rows), b0, b1, c13);
        c14 = step2(shared14(rows), b0, b1, c14);
        c15 = step2(shared15(rows), b0, b1, c15);
        c16 = step2(shared16(rows), b0, b1, c16);
        c17 = step2(shared17(rows), b0, b1, c17);
        c18 = step2(shared18(rows), b0, b1, c18);
        c19 = step2(shared19(rows), b0, b1, c19);
        c20 = step2(shared20(rows), b0, b1, c20);
        c21 = step2(shared21(rows), b0, b1, c21);
        c22 = step2(shared22(rows), b0, b1, c22);
        c23 = step2(shared23(rows), b0, b1, c23);
        c24 = step2(shared24(rows), b0, b1, c24);
        c25 = step2(shared25(rows), b0, b1, c25);
        c26 = step2(shared26(rows), b0, b1, c26);
        c27 = step2(shared27(rows), b0, b1, c27);
        c28 = step2(shared28(rows), b0, b1, c28);
        c29 = step2(shared29(rows), b0, b1, c29);
        c30 = step2(shared30(rows), b0, b1, c30);
        c31 = step2(shared31(rows), b0, b1, c31);
    }
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let c_at = batch * p.c_batch + col;
    for (var row = row0; row < min(row0 + 32u, p.m); row += 1u) {
        let at = c_at + row * p.n + vec4(0u, WG, 0u, 0u);
        store(at, vec4(col < p.n, col + WG < p.n, false, false), c0.xyyy);
        c0 = c1; c1 = c2; c2 = c3; c3 = c4; c4 = c5; c5 = c6; c6 = c7; c7 = c8; c8 = c9; c9 = c10; c10 = c11;
        c11 = c12; c12 = c13; c13 = c14; c14 = c15; c15 = c16; c16 = c17; c17 = c18; c18 = c19; c19 = c20;
        c20 = c21; c21 = c22; c22 = c23; c23 = c24; c24 = c25; c25 = c26; c26 = c27; c27 = c28; c28 = c29;
        c29 = c30; c30 = c31;
    }
}
