// matmul_cpu_any: C = op(A) · op(B), any sizes and strides, for CPU adapters: no barrier, no workgroup memory
// a: A(i, k) at i * a_row + k * a_col   b: B(k, j) at k * b_row + j * b_col   ->   c [M, N], row-major
//   repeated `batch` times; K = 0 gives zeros
// grid: see params.wgsl; surplus workgroups return; tiles_m = ceil(M / 32), tiles_n = ceil(N / (2 * WG))
// overrides: WG (threads per workgroup, along N; multiple of 8)
// requires: subgroups of at least LANES;
//   K <= 130,000 on lavapipe, which ends a thread's loops after 65,535 iterations in total
#import matmul/operands
#import common/lanes

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
#repeat i $(32 / LANES)
    let at$i = row_at(a_base, row0, lane, $(i)u);
#endrepeat
    let b_base = batch * p.b_batch;
    let b_at = b_base + min(vec2(col, col + WG), vec2(p.n - 1u)) * p.b_col;
#repeat i 32
    var c$i = vec2<f32>();
#endrepeat
    for (var k = 0u; k < p.k; k += 2u) {
        // A step past K adds 0 * 0: both sides are masked, or an infinity at the last step would become NaN.
        let is_live = k + 1u < p.k;
        let live = vec2(true, is_live);
        let steps = vec2(k, select(k, k + 1u, is_live));
        let a_k = steps * p.a_col;
        let b_k = steps * p.b_row;
#repeat i $(32 / LANES)
        let v$i = select(Row(), two_of_a(at$i + a_k), live);
#endrepeat
        let b0 = two_of_b(b_at + b_k.x);
        let b1 = select(vec2<f32>(), two_of_b(b_at + b_k.y), is_live);
#repeat i 32
        c$i = step2(subgroupBroadcast(v$(i / LANES), $(i % LANES)u), b0, b1, c$i);
#endrepeat
    }
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let c_at = batch * p.c_batch + col;
    for (var row = row0; row < min(row0 + 32u, p.m); row += 1u) {
        let at = c_at + row * p.n + vec4(0u, WG, 0u, 0u);
        store(at, vec4(col < p.n, col + WG < p.n, false, false), c0.xyyy);
#repeat i 31
        c$i = c$(i + 1);
#endrepeat
    }
}
