// matmul_cpu_any: C = op(A) · op(B), any sizes and strides, for CPU adapters: no barrier, no workgroup memory
// a: A(i, k) at i * a_row + k * a_col   b: B(k, j) at k * b_row + j * b_col   ->   c [M, N], row-major
//   repeated `batch` times; K = 0 gives zeros
// grid: see prelude/matmul_params; surplus workgroups return; tiles_m = ceil(M / 32), tiles_n = ceil(N / (2 * WG))
// overrides: WG (threads per workgroup, along N; multiple of 8)
// requires: subgroups of at least 8;
//   K <= 250,000 on lavapipe, which ends a thread's loops after 65,535 turns in sum

override WG: u32 = 8u;

// Four steps of K for one row of the tile, in the order of K.
fn step4(
    s0: f32, s1: f32, s2: f32, s3: f32,
    b0: vec2<f32>, b1: vec2<f32>, b2: vec2<f32>, b3: vec2<f32>, acc: vec2<f32>,
) -> vec2<f32> {
    return fma(vec2(s3), b3, fma(vec2(s2), b2, fma(vec2(s1), b1, fma(vec2(s0), b0, acc))));
}

fn pair_of_b(i: vec2<u32>) -> vec2<f32> {
    return vec2(read_b(i.x), read_b(i.y));
}

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
    let col = tile % per_matrix % p.tiles_n * 2u * WG + local.x;
    let a_base = batch * p.a_batch;
    let a0_at = a_base + min(row0 + lane % 8u, p.m - 1u) * p.a_row;
    let a1_at = a_base + min(row0 + 8u + lane % 8u, p.m - 1u) * p.a_row;
    let a2_at = a_base + min(row0 + 16u + lane % 8u, p.m - 1u) * p.a_row;
    let a3_at = a_base + min(row0 + 24u + lane % 8u, p.m - 1u) * p.a_row;
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
        // Steps past K add 0 * 0: both sides are masked, or an infinity at the last step would turn to NaN.
        let last = p.k - 1u - k;
        let b0 = pair_of_b(b_at + k * p.b_row);
        let a00 = read_a(a0_at + k * p.a_col);
        let a10 = read_a(a1_at + k * p.a_col);
        let a20 = read_a(a2_at + k * p.a_col);
        let a30 = read_a(a3_at + k * p.a_col);
        let k1 = k + min(1u, last);
        let b1 = select(vec2<f32>(), pair_of_b(b_at + k1 * p.b_row), 1u <= last);
        let a01 = select(0.0, read_a(a0_at + k1 * p.a_col), 1u <= last);
        let a11 = select(0.0, read_a(a1_at + k1 * p.a_col), 1u <= last);
        let a21 = select(0.0, read_a(a2_at + k1 * p.a_col), 1u <= last);
        let a31 = select(0.0, read_a(a3_at + k1 * p.a_col), 1u <= last);
        let k2 = k + min(2u, last);
        let b2 = select(vec2<f32>(), pair_of_b(b_at + k2 * p.b_row), 2u <= last);
        let a02 = select(0.0, read_a(a0_at + k2 * p.a_col), 2u <= last);
        let a12 = select(0.0, read_a(a1_at + k2 * p.a_col), 2u <= last);
        let a22 = select(0.0, read_a(a2_at + k2 * p.a_col), 2u <= last);
        let a32 = select(0.0, read_a(a3_at + k2 * p.a_col), 2u <= last);
        let k3 = k + min(3u, last);
        let b3 = select(vec2<f32>(), pair_of_b(b_at + k3 * p.b_row), 3u <= last);
        let a03 = select(0.0, read_a(a0_at + k3 * p.a_col), 3u <= last);
        let a13 = select(0.0, read_a(a1_at + k3 * p.a_col), 3u <= last);
        let a23 = select(0.0, read_a(a2_at + k3 * p.a_col), 3u <= last);
        let a33 = select(0.0, read_a(a3_at + k3 * p.a_col), 3u <= last);
        c0 = step4(subgroupBroadcast(a00, 0u), subgroupBroadcast(a01, 0u),
            subgroupBroadcast(a02, 0u), subgroupBroadcast(a03, 0u), b0, b1, b2, b3, c0);
        c1 = step4(subgroupBroadcast(a00, 1u), subgroupBroadcast(a01, 1u),
            subgroupBroadcast(a02, 1u), subgroupBroadcast(a03, 1u), b0, b1, b2, b3, c1);
        c2 = step4(subgroupBroadcast(a00, 2u), subgroupBroadcast(a01, 2u),
            subgroupBroadcast(a02, 2u), subgroupBroadcast(a03, 2u), b0, b1, b2, b3, c2);
        c3 = step4(subgroupBroadcast(a00, 3u), subgroupBroadcast(a01, 3u),
            subgroupBroadcast(a02, 3u), subgroupBroadcast(a03, 3u), b0, b1, b2, b3, c3);
        c4 = step4(subgroupBroadcast(a00, 4u), subgroupBroadcast(a01, 4u),
            subgroupBroadcast(a02, 4u), subgroupBroadcast(a03, 4u), b0, b1, b2, b3, c4);
        c5 = step4(subgroupBroadcast(a00, 5u), subgroupBroadcast(a01, 5u),
            subgroupBroadcast(a02, 5u), subgroupBroadcast(a03, 5u), b0, b1, b2, b3, c5);
        c6 = step4(subgroupBroadcast(a00, 6u), subgroupBroadcast(a01, 6u),
            subgroupBroadcast(a02, 6u), subgroupBroadcast(a03, 6u), b0, b1, b2, b3, c6);
        c7 = step4(subgroupBroadcast(a00, 7u), subgroupBroadcast(a01, 7u),
            subgroupBroadcast(a02, 7u), subgroupBroadcast(a03, 7u), b0, b1, b2, b3, c7);
        c8 = step4(subgroupBroadcast(a10, 0u), subgroupBroadcast(a11, 0u),
            subgroupBroadcast(a12, 0u), subgroupBroadcast(a13, 0u), b0, b1, b2, b3, c8);
        c9 = step4(subgroupBroadcast(a10, 1u), subgroupBroadcast(a11, 1u),
            subgroupBroadcast(a12, 1u), subgroupBroadcast(a13, 1u), b0, b1, b2, b3, c9);
        c10 = step4(subgroupBroadcast(a10, 2u), subgroupBroadcast(a11, 2u),
            subgroupBroadcast(a12, 2u), subgroupBroadcast(a13, 2u), b0, b1, b2, b3, c10);
        c11 = step4(subgroupBroadcast(a10, 3u), subgroupBroadcast(a11, 3u),
            subgroupBroadcast(a12, 3u), subgroupBroadcast(a13, 3u), b0, b1, b2, b3, c11);
        c12 = step4(subgroupBroadcast(a10, 4u), subgroupBroadcast(a11, 4u),
            subgroupBroadcast(a12, 4u), subgroupBroadcast(a13, 4u), b0, b1, b2, b3, c12);
        c13 = step4(subgroupBroadcast(a10, 5u), subgroupBroadcast(a11, 5u),
            subgroupBroadcast(a12, 5u), subgroupBroadcast(a13, 5u), b0, b1, b2, b3, c13);
        c14 = step4(subgroupBroadcast(a10, 6u), subgroupBroadcast(a11, 6u),
            subgroupBroadcast(a12, 6u), subgroupBroadcast(a13, 6u), b0, b1, b2, b3, c14);
        c15 = step4(subgroupBroadcast(a10, 7u), subgroupBroadcast(a11, 7u),
            subgroupBroadcast(a12, 7u), subgroupBroadcast(a13, 7u), b0, b1, b2, b3, c15);
        c16 = step4(subgroupBroadcast(a20, 0u), subgroupBroadcast(a21, 0u),
            subgroupBroadcast(a22, 0u), subgroupBroadcast(a23, 0u), b0, b1, b2, b3, c16);
        c17 = step4(subgroupBroadcast(a20, 1u), subgroupBroadcast(a21, 1u),
            subgroupBroadcast(a22, 1u), subgroupBroadcast(a23, 1u), b0, b1, b2, b3, c17);
        c18 = step4(subgroupBroadcast(a20, 2u), subgroupBroadcast(a21, 2u),
            subgroupBroadcast(a22, 2u), subgroupBroadcast(a23, 2u), b0, b1, b2, b3, c18);
        c19 = step4(subgroupBroadcast(a20, 3u), subgroupBroadcast(a21, 3u),
            subgroupBroadcast(a22, 3u), subgroupBroadcast(a23, 3u), b0, b1, b2, b3, c19);
        c20 = step4(subgroupBroadcast(a20, 4u), subgroupBroadcast(a21, 4u),
            subgroupBroadcast(a22, 4u), subgroupBroadcast(a23, 4u), b0, b1, b2, b3, c20);
        c21 = step4(subgroupBroadcast(a20, 5u), subgroupBroadcast(a21, 5u),
            subgroupBroadcast(a22, 5u), subgroupBroadcast(a23, 5u), b0, b1, b2, b3, c21);
        c22 = step4(subgroupBroadcast(a20, 6u), subgroupBroadcast(a21, 6u),
            subgroupBroadcast(a22, 6u), subgroupBroadcast(a23, 6u), b0, b1, b2, b3, c22);
        c23 = step4(subgroupBroadcast(a20, 7u), subgroupBroadcast(a21, 7u),
            subgroupBroadcast(a22, 7u), subgroupBroadcast(a23, 7u), b0, b1, b2, b3, c23);
        c24 = step4(subgroupBroadcast(a30, 0u), subgroupBroadcast(a31, 0u),
            subgroupBroadcast(a32, 0u), subgroupBroadcast(a33, 0u), b0, b1, b2, b3, c24);
        c25 = step4(subgroupBroadcast(a30, 1u), subgroupBroadcast(a31, 1u),
            subgroupBroadcast(a32, 1u), subgroupBroadcast(a33, 1u), b0, b1, b2, b3, c25);
        c26 = step4(subgroupBroadcast(a30, 2u), subgroupBroadcast(a31, 2u),
            subgroupBroadcast(a32, 2u), subgroupBroadcast(a33, 2u), b0, b1, b2, b3, c26);
        c27 = step4(subgroupBroadcast(a30, 3u), subgroupBroadcast(a31, 3u),
            subgroupBroadcast(a32, 3u), subgroupBroadcast(a33, 3u), b0, b1, b2, b3, c27);
        c28 = step4(subgroupBroadcast(a30, 4u), subgroupBroadcast(a31, 4u),
            subgroupBroadcast(a32, 4u), subgroupBroadcast(a33, 4u), b0, b1, b2, b3, c28);
        c29 = step4(subgroupBroadcast(a30, 5u), subgroupBroadcast(a31, 5u),
            subgroupBroadcast(a32, 5u), subgroupBroadcast(a33, 5u), b0, b1, b2, b3, c29);
        c30 = step4(subgroupBroadcast(a30, 6u), subgroupBroadcast(a31, 6u),
            subgroupBroadcast(a32, 6u), subgroupBroadcast(a33, 6u), b0, b1, b2, b3, c30);
        c31 = step4(subgroupBroadcast(a30, 7u), subgroupBroadcast(a31, 7u),
            subgroupBroadcast(a32, 7u), subgroupBroadcast(a33, 7u), b0, b1, b2, b3, c31);
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
