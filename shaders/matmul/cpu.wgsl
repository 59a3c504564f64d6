// Matrix products for CPU adapters, without barriers and workgroup memory: C = A · B, with B_COLUMNS A · Bᵀ, with TN Aᵀ · B
// a [M, K], with TN [K, M]  b [K, N], with B_COLUMNS [N, K]  ->  c [M, N]
//   repeated `batch` times; K = 0 gives zeros; ROWS x 4·WG results per workgroup: ROWS = 8 with LANES4, else 32
// grid: see params.wgsl; surplus workgroups return; tiles_m = ceil(M / ROWS), tiles_n = ceil(N / (4 * WG))
// overrides: WG (threads per workgroup, along N; multiple of LANES)
// requires: K % 4 == 0, with TN M % 4 == 0; N % 4 == 0; batch strides % 4 == 0; subgroups of at least LANES;
//   K <= 250,000 on lavapipe, which ends a thread's loops after 65,535 iterations in total
#import matmul/operands
#if !TN
// Reads of B for four iterations: with B_COLUMNS of B [N, K], else of B [K, N].
#if B_COLUMNS
// B [N, K]: each of four neighbouring columns gives four steps of K in one read; they are transposed here.
struct Steps {
    b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>,
}
// `start`: start of this batch's B, `col` and `k`: which four columns and which four steps.
fn steps_of_b(start: u32, col: u32, k: u32) -> Steps {
    let k4 = p.k / 4u;
    let at = start + col * p.k + k;
    let t0 = read_b(at);
    let t1 = read_b(at + k4);
    let t2 = read_b(at + 2u * k4);
    let t3 = read_b(at + 3u * k4);
    return Steps(
        vec4(t0.x, t1.x, t2.x, t3.x), vec4(t0.y, t1.y, t2.y, t3.y),
        vec4(t0.z, t1.z, t2.z, t3.z), vec4(t0.w, t1.w, t2.w, t3.w),
    );
}
#else
// B [K, N]: four steps of K at four neighbouring columns are four reads.
struct Steps {
    b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>,
}
// `start`: start of this batch's B, `col` and `k`: which four columns and which four steps.
fn steps_of_b(start: u32, col: u32, k: u32) -> Steps {
    let n4 = p.n / 4u;
    let at = start + col + k * p.n;
    return Steps(read_b(at), read_b(at + n4), read_b(at + 2u * n4), read_b(at + 3u * n4));
}
#endif
#endif
#import common/lanes
#if LANES4
#let ROWS 8
#else
#let ROWS 32
#endif
const ROWS = $(ROWS)u;
override WG: u32 = 8u;

// Lanes share loads of A. Rows past the edge repeat the last one and are not stored.
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
    let row0 = tile % per_matrix / p.tiles_n * ROWS;
    let n4 = p.n / 4u;
    let col = tile % per_matrix % p.tiles_n * WG + local.x;
    let col_in = min(col, n4 - 1u);
    let a_start = batch * (p.a_batch / 4u);
    let b_start = batch * (p.b_batch / 4u);
#repeat i $ROWS
    var c$i = vec4<f32>();
#endrepeat
#if TN
    // A lane loads a vec4 of rows; lanes that all rows leave over load the next step of K.
#let QUADS $(ROWS / 4)
#let STEPS $(LANES / QUADS)
    let m4 = p.m / 4u;
    let a_at = a_start + min(row0 / 4u + lane % $(QUADS)u, m4 - 1u);
    let ahead = lane % LANES / $(QUADS)u;
    let b_at = b_start + col_in;
    for (var k = 0u; k < p.k; k += 4u) {
        // Steps past K add 0 * 0: both sides are masked, or an infinity at the last step would become NaN.
        let last = p.k - 1u - k;
#repeat i $(4 / STEPS)
        let step$i = ahead + $(i * STEPS)u;
        let a$i = select(vec4<f32>(), read_a(a_at + (k + min(step$i, last)) * m4), step$i <= last);
#endrepeat
#repeat i 4
        let b$i = select(vec4<f32>(), read_b(b_at + (k + min($(i)u, last)) * n4), $(i)u <= last);
#endrepeat
#repeat q $QUADS
#repeat i 4
        let s$(q)_$i = subgroupBroadcast(a$(i / STEPS), $(i % STEPS * QUADS + q)u);
#endrepeat
#repeat i 4
        c$(q * 4 + i) = step4(vec4(s$(q)_0[$i], s$(q)_1[$i], s$(q)_2[$i], s$(q)_3[$i]), b0, b1, b2, b3, c$(q * 4 + i));
#endrepeat
#endrepeat
    }
#else
    // A lane loads a vec4 of steps of K of every LANES-th row.
    let k4 = p.k / 4u;
#repeat i $(ROWS / LANES)
    let a$(i)_at = a_start + min(row0 + $(i * LANES)u + lane % LANES, p.m - 1u) * k4;
#endrepeat
    for (var k = 0u; k < k4; k += 1u) {
#repeat i $(ROWS / LANES)
        let a$i = read_a(a$(i)_at + k);
#endrepeat
        let b = steps_of_b(b_start, col_in, k);
#repeat i $ROWS
        c$i = step4(subgroupBroadcast(a$(i / LANES), $(i % LANES)u), b.b0, b.b1, b.b2, b.b3, c$i);
#endrepeat
    }
#endif
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let c_at = batch * (p.c_batch / 4u) + col;
    for (var row = row0; row < min(row0 + ROWS, p.m); row += 1u) {
        if (col < n4) {
            store(c_at + row * n4, c0);
        }
#repeat i $(ROWS - 1)
        c$i = c$(i + 1);
#endrepeat
    }
}
