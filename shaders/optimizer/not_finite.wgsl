// Whether a gradient has NaN or infinities: counts of chunks, then with END of all.
#if END
// not_finite_end: y = 1 if any count is above 0, else 0
// count [chunks] -> y []
// grid: one thread      overrides: none
struct Params {
    chunks: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> count: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main() {
    var any = 0.0;
    for (var i = 0u; i < p.chunks; i++) {
        any = max(any, count[i]);
    }
    y[0] = min(any, 1.0);
}
#else
#import common/grid
// not_finite: how many elements of each chunk are NaN or exceed `most`; by bits, because compilers assume that there is no NaN
// x [n] as bits -> count [chunks]
// grid: one thread per chunk, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32,
    chunk: u32,
    chunks: u32,
    most: u32, // a number's bits
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> count: array<f32>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.chunks) {
        return;
    }
    var counted = 0u;
    for (var l = i * p.chunk; l < min((i + 1u) * p.chunk, p.n); l++) {
        counted += select(0u, 1u, (x[l] & 0x7fffffffu) > p.most);
    }
    count[i] = f32(counted);
}
#endif
