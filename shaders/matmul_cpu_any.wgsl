// matmul_cpu_any: C = op(A) · op(B), any sizes and strides, for CPU adapters: no barrier, no workgroup memory
// a: A(i, k) at i * a_row + k * a_col   b: B(k, j) at k * b_row + j * b_col   ->   c [M, N], row-major
//   repeated `batch` times; K = 0 gives zeros
// grid: see prelude/matmul_params; surplus workgroups return; tiles_m = ceil(M / 32), tiles_n = ceil(N / (2 * WG))
// overrides: WG (threads per workgroup, along N; multiple of 8)
// requires: subgroups of at least LANES;
//   K <= 250,000 on lavapipe, which ends a thread's loops after 65,535 turns in sum

override WG: u32 = 8u;

// Four steps of K of one row of A.
alias Row = vec4<f32>;

// Where the i-th row that a lane reads begins. Rows past the edge repeat the last one and are not stored.
fn row_at(base: u32, row0: u32, lane: u32, i: u32) -> u32 {
    return base + min(row0 + i * LANES + lane % LANES, p.m - 1u) * p.a_row;
}

// Steps past K add 0 * 0: both sides are masked, or an infinity at the last step would turn to NaN.
fn steps_of_a(at: u32, k: u32) -> Row {
    let last = vec4(p.k - 1u - k);
    let four = vec4(0u, 1u, 2u, 3u);
    return select(vec4<f32>(), read_four_a(at + (k + min(four, last)) * p.a_col), four <= last);
}
fn step_of_b(at: vec2<u32>, k: u32, i: u32) -> vec2<f32> {
    let last = p.k - 1u - k;
    let here = at + (k + min(i, last)) * p.b_row;
    return select(vec2<f32>(), vec2(read_b(here.x), read_b(here.y)), i <= last);
}

// Four steps for one row of the tile, in the order of K.
fn step4(s: Row, b0: vec2<f32>, b1: vec2<f32>, b2: vec2<f32>, b3: vec2<f32>, acc: vec2<f32>) -> vec2<f32> {
    return fma(vec2(s.w), b3, fma(vec2(s.z), b2, fma(vec2(s.y), b1, fma(vec2(s.x), b0, acc))));
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
    for (var k = 0u; k < p.k; k += 4u) {
        var rows: Shared;
        rows.v0 = steps_of_a(at0, k);
        rows.v1 = steps_of_a(at1, k);
        rows.v2 = steps_of_a(at2, k);
        rows.v3 = steps_of_a(at3, k);
        let b0 = step_of_b(b_at, k, 0u);
        let b1 = step_of_b(b_at, k, 1u);
        let b2 = step_of_b(b_at, k, 2u);
        let b3 = step_of_b(b_at, k, 3u);
        c0 = step4(shared0(rows), b0, b1, b2, b3, c0);
        c1 = step4(shared1(rows), b0, b1, b2, b3, c1);
        c2 = step4(shared2(rows), b0, b1, b2, b3, c2);
        c3 = step4(shared3(rows), b0, b1, b2, b3, c3);
        c4 = step4(shared4(rows), b0, b1, b2, b3, c4);
        c5 = step4(shared5(rows), b0, b1, b2, b3, c5);
        c6 = step4(shared6(rows), b0, b1, b2, b3, c6);
        c7 = step4(shared7(rows), b0, b1, b2, b3, c7);
        c8 = step4(shared8(rows), b0, b1, b2, b3, c8);
        c9 = step4(shared9(rows), b0, b1, b2, b3, c9);
        c10 = step4(shared10(rows), b0, b1, b2, b3, c10);
        c11 = step4(shared11(rows), b0, b1, b2, b3, c11);
        c12 = step4(shared12(rows), b0, b1, b2, b3, c12);
        c13 = step4(shared13(rows), b0, b1, b2, b3, c13);
        c14 = step4(shared14(rows), b0, b1, b2, b3, c14);
        c15 = step4(shared15(rows), b0, b1, b2, b3, c15);
        c16 = step4(shared16(rows), b0, b1, b2, b3, c16);
        c17 = step4(shared17(rows), b0, b1, b2, b3, c17);
        c18 = step4(shared18(rows), b0, b1, b2, b3, c18);
        c19 = step4(shared19(rows), b0, b1, b2, b3, c19);
        c20 = step4(shared20(rows), b0, b1, b2, b3, c20);
        c21 = step4(shared21(rows), b0, b1, b2, b3, c21);
        c22 = step4(shared22(rows), b0, b1, b2, b3, c22);
        c23 = step4(shared23(rows), b0, b1, b2, b3, c23);
        c24 = step4(shared24(rows), b0, b1, b2, b3, c24);
        c25 = step4(shared25(rows), b0, b1, b2, b3, c25);
        c26 = step4(shared26(rows), b0, b1, b2, b3, c26);
        c27 = step4(shared27(rows), b0, b1, b2, b3, c27);
        c28 = step4(shared28(rows), b0, b1, b2, b3, c28);
        c29 = step4(shared29(rows), b0, b1, b2, b3, c29);
        c30 = step4(shared30(rows), b0, b1, b2, b3, c30);
        c31 = step4(shared31(rows), b0, b1, b2, b3, c31);
    }
    // One store for all rows, the accumulators moving up behind it: a store per row doubles the compile time.
    let c_at = batch * p.c_batch + col;
    for (var row = row0; row < min(row0 + 32u, p.m); row += 1u) {
        let at = c_at + row * p.n + vec4(0u, WG, 0u, 0u);
        store(at, vec4(col < p.n, col + WG < p.n, false, false), c0.xyyy);
        c0 = c1; c1 = c2; c2 = c3; c3 = c4;
        c4 = c5; c5 = c6; c6 = c7; c7 = c8;
        c8 = c9; c9 = c10; c10 = c11; c11 = c12;
        c12 = c13; c13 = c14; c14 = c15; c15 = c16;
        c16 = c17; c17 = c18; c18 = c19; c19 = c20;
        c20 = c21; c21 = c22; c22 = c23; c23 = c24;
        c24 = c25; c25 = c26; c26 = c27; c27 = c28;
        c28 = c29; c29 = c30; c30 = c31;
    }
}
