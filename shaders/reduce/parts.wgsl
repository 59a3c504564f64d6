// sum_parts: c = x[0] + x[1] + .., in this order, and what an epilogue makes of it
// x [parts, len] -> c [len]
// grid: one thread per element, with STORE_VEC4 per four, folded      overrides: none
#import common/grid
#import common/store
struct Params {
    threads_x: u32,
    threads: u32,
    parts: u32,
    len: u32,
    @align(16) rest: Rest,
}
@group(0) @binding(0) var<uniform> p: Params;
#if STORE_VEC4
// Lengths that are multiples of four.
@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<f32>>;

fn sum_at(i: u32) {
    var sum = x[i];
    for (var part = 1u; part < p.parts; part++) {
        sum += x[part * p.threads + i];
    }
    store(i, sum);
}
#else
// Any lengths.
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

fn sum_at(i: u32) {
    var sum = x[i];
    for (var part = 1u; part < p.parts; part++) {
        sum += x[part * p.len + i];
    }
    store(i, sum);
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.threads) {
        sum_at(i);
    }
}
