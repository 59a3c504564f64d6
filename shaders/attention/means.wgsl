// stats = (lse, Σ do ∘ o) for each row of scores; the sum is the mean of dP, weighted by the row's weights P.
// do, o [b, rows, heads, d], lse [b, heads, rows] -> stats [b, heads, rows, 2]
// With DOCUMENTS, u32 [b, cols, 2]: they come after those, exact as f32 below 2^24, so that the gradients need no operand more.
// grid: one thread per row of o, and per key with DOCUMENTS, folded
#import common/grid
struct Params {
    threads_x: u32,
    // Threads; rows of o in all, queries, heads, vec4 of a head.
    threads: u32, count: u32, rows: u32, heads: u32, quads: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> dy: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> o: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<storage, read_write> stats: array<vec2<f32>>;
#if DOCUMENTS
@group(0) @binding(5) var<storage, read_write> documents: array<vec2<u32>>;
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.count) {
        var sum = vec4<f32>();
        for (var c = 0u; c < p.quads; c += 1u) {
            sum = fma(dy[i * p.quads + c], o[i * p.quads + c], sum);
        }
        let row = i / p.heads;
        let at = (row / p.rows * p.heads + i % p.heads) * p.rows + row % p.rows;
        stats[at] = vec2(lse[at], (sum.x + sum.y) + (sum.z + sum.w));
    }
#if DOCUMENTS
    if (i >= p.count && i < p.threads) {
        stats[i] = vec2<f32>(documents[i - p.count]);
    }
#endif
}
