// label_share: y = 1 / max(1, how many labels are not IGNORE (2^32 - 1)); of many labels one launch counts those of each chunk,
// and a second adds the counts
// x [n] u32 labels, or counts -> y [chunks] counts as u32; of one chunk the share, as f32
// grid: one thread per chunk, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32,
    chunk: u32,
    chunks: u32,
    counts: u32, // whether x are counts
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.chunks) {
        return;
    }
    var counted = 0u;
    for (var l = i * p.chunk; l < min((i + 1u) * p.chunk, p.n); l++) {
        counted += select(select(1u, 0u, x[l] == 0xffffffffu), x[l], p.counts == 1u);
    }
    y[i] = select(counted, bitcast<u32>(1.0 / f32(max(counted, 1u))), p.chunks == 1u);
}
