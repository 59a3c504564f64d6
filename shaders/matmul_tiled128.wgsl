// matmul_tiled128: C = op(A) · op(B), for discrete GPUs     128 x 128 per workgroup of 256 threads, 8 x 8 each
// a [M, K], or [K, M] with TRANSPOSE_A   b [K, N], or [N, K] with TRANSPOSE_B   ->   c [M, N]
//   repeated `batch` times; K = 0 gives zeros
// grid: see prelude/matmul_params; surplus workgroups return; tiles_m = ceil(M / 128), tiles_n = ceil(N / 128)
// overrides: TRANSPOSE_A, TRANSPOSE_B
// requires: rows of A, B and C that are multiples of four long; batch strides % 4 == 0; 16,384 bytes of workgroup memory
override TRANSPOSE_A: bool = false;
override TRANSPOSE_B: bool = false;

// Sixteen steps of K, 32 quads of rows (of columns) each.
var<workgroup> a_tile: array<vec4<f32>, 512>;
var<workgroup> b_tile: array<vec4<f32>, 512>;

// Where quad `q` of step `k` lies. Every fourth step quads trade places in pairs, so that blocks which are turned round on
// their way here, of neighbouring threads, spread over all banks: padding would do that too, and take more than 16 KiB.
fn place(k: u32, q: u32) -> u32 {
    return k * 32u + (q ^ (k / 4u * 2u));
}

// Four steps of K for four neighbouring rows (columns): a quad for each step.
struct Block {
    s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>,
}

fn turned(t: Block) -> Block {
    return Block(
        vec4(t.s0.x, t.s1.x, t.s2.x, t.s3.x), vec4(t.s0.y, t.s1.y, t.s2.y, t.s3.y),
        vec4(t.s0.z, t.s1.z, t.s2.z, t.s3.z), vec4(t.s0.w, t.s1.w, t.s2.w, t.s3.w),
    );
}

// The quad of step k in rows `q`, where rows are neighbours in memory. Steps past K are zero, on both sides.
fn a_across(start: u32, k: u32, q: u32) -> vec4<f32> {
    return select(vec4<f32>(), read_a(start + min(k, p.k - 1u) * (p.m / 4u) + q), k < p.k);
}
fn b_across(start: u32, k: u32, q: u32) -> vec4<f32> {
    return select(vec4<f32>(), read_b(start + min(k, p.k - 1u) * (p.n / 4u) + q), k < p.k);
}
// Steps 4 k to 4 k + 3 of one row, where steps are neighbours in memory.
fn a_along(start: u32, k: u32, row: u32) -> vec4<f32> {
    let k4 = p.k / 4u;
    return select(vec4<f32>(), read_a(start + min(row, p.m - 1u) * k4 + min(k, k4 - 1u)), k < k4);
}
fn b_along(start: u32, k: u32, col: u32) -> vec4<f32> {
    let k4 = p.k / 4u;
    return select(vec4<f32>(), read_b(start + min(col, p.n - 1u) * k4 + min(k, k4 - 1u)), k < k4);
}

// Which four steps and which quad a thread fetches: neighbouring threads follow what is contiguous in memory.
fn share(thread: u32, across: bool) -> vec2<u32> {
    return select(vec2(thread % 4u, thread / 4u), vec2(thread / 32u, thread % 32u), across);
}

// Rows past the edge repeat the last ones and are never stored.
fn fetch_a(start: u32, k0: u32, row0: u32, own: vec2<u32>) -> Block {
    if (TRANSPOSE_A) {
        let k = k0 + own.x * 4u;
        let q = min(row0 / 4u + own.y, p.m / 4u - 1u);
        return Block(
            a_across(start, k, q), a_across(start, k + 1u, q), a_across(start, k + 2u, q), a_across(start, k + 3u, q),
        );
    }
    let k = k0 / 4u + own.x;
    let row = row0 + own.y * 4u;
    return turned(Block(
        a_along(start, k, row), a_along(start, k, row + 1u), a_along(start, k, row + 2u), a_along(start, k, row + 3u),
    ));
}
fn fetch_b(start: u32, k0: u32, col0: u32, own: vec2<u32>) -> Block {
    if (TRANSPOSE_B) {
        let k = k0 / 4u + own.x;
        let col = col0 + own.y * 4u;
        return turned(Block(
            b_along(start, k, col), b_along(start, k, col + 1u), b_along(start, k, col + 2u), b_along(start, k, col + 3u),
        ));
    }
    let k = k0 + own.x * 4u;
    let q = min(col0 / 4u + own.y, p.n / 4u - 1u);
    return Block(
        b_across(start, k, q), b_across(start, k + 1u, q), b_across(start, k + 2u, q), b_across(start, k + 3u, q),
    );
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = wg.y * p.grid_x + wg.x;
    let per_matrix = p.tiles_m * p.tiles_n;
    let batch = tile / per_matrix;
    if (batch >= p.batch) {
        return;
    }
    let row0 = tile % per_matrix / p.tiles_n * 128u;
    let col0 = tile % per_matrix % p.tiles_n * 128u;
    let a_start = batch * (p.a_batch / 4u);
    let b_start = batch * (p.b_batch / 4u);
    // Half of the threads fetch A, the others B. What the next turn needs is on its way while this one computes.
    let fetches_a = thread < 128u;
    let own = share(thread % 128u, select(!TRANSPOSE_B, TRANSPOSE_A, fetches_a));
    var next = Block();
    if (p.k > 0u) {
        if (fetches_a) {
            next = fetch_a(a_start, 0u, row0, own);
        } else {
            next = fetch_b(b_start, 0u, col0, own);
        }
    }
    // A thread owns row quads y and y + 16, column quads x and x + 16; 32 neighbours 4 x 8 of them.
    let x = thread % 8u + thread / 32u % 2u * 8u;
    let y = thread / 8u % 4u + thread / 64u * 4u;
    var l0 = vec4<f32>(); var r0 = vec4<f32>();
    var l1 = vec4<f32>(); var r1 = vec4<f32>();
    var l2 = vec4<f32>(); var r2 = vec4<f32>();
    var l3 = vec4<f32>(); var r3 = vec4<f32>();
    var l4 = vec4<f32>(); var r4 = vec4<f32>();
    var l5 = vec4<f32>(); var r5 = vec4<f32>();
    var l6 = vec4<f32>(); var r6 = vec4<f32>();
    var l7 = vec4<f32>(); var r7 = vec4<f32>();
    for (var k0 = 0u; k0 < p.k; k0 += 16u) {
        let k = own.x * 4u;
        if (fetches_a) {
            a_tile[place(k, own.y)] = next.s0;
            a_tile[place(k + 1u, own.y)] = next.s1;
            a_tile[place(k + 2u, own.y)] = next.s2;
            a_tile[place(k + 3u, own.y)] = next.s3;
        } else {
            b_tile[place(k, own.y)] = next.s0;
            b_tile[place(k + 1u, own.y)] = next.s1;
            b_tile[place(k + 2u, own.y)] = next.s2;
            b_tile[place(k + 3u, own.y)] = next.s3;
        }
        workgroupBarrier();
        if (k0 + 16u < p.k) {
            if (fetches_a) {
                next = fetch_a(a_start, k0 + 16u, row0, own);
            } else {
                next = fetch_b(b_start, k0 + 16u, col0, own);
            }
        }
        for (var k = 0u; k < 16u; k += 1u) {
            let s = a_tile[place(k, y)];
            let t = a_tile[place(k, y + 16u)];
            let left = b_tile[place(k, x)];
            let right = b_tile[place(k, x + 16u)];
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
    // One store for all rows, the accumulators moving up behind it: a store per row doubles the compile time.
    let n4 = p.n / 4u;
    let col = col0 / 4u + x;
    for (var i = 0u; i < 8u; i += 1u) {
        let row = row0 + i / 4u * 64u + y * 4u + i % 4u;
        let at = batch * (p.c_batch / 4u) + row * n4 + col;
        if (row < p.m && col < n4) {
            store(at, l0);
        }
        if (row < p.m && col + 16u < n4) {
            store(at + 16u, r0);
        }
        l0 = l1; l1 = l2; l2 = l3; l3 = l4; l4 = l5; l5 = l6; l6 = l7;
        r0 = r1; r1 = r2; r2 = r3; r3 = r4; r4 = r5; r5 = r6; r6 = r7;
    }
}
