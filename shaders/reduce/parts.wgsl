// sum_parts: c = x[0] + x[1] + .., in this order, and what an epilogue makes of it
// x [parts, len] -> c [len]
// grid: one thread per four elements, folded      overrides: none
#import common/grid
#import common/store
struct Params {
    threads_x: u32,
    fours: u32,
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
        sum += x[part * p.fours + i];
    }
    store(i, sum);
}
#else
// Any lengths. Elements past the end repeat the last one and are not stored.
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

fn sum_at(i: u32) {
    let own = vec4(4u * i) + vec4(0u, 1u, 2u, 3u);
    var at = min(own, vec4(p.len - 1u));
    var sum = vec4(x[at.x], x[at.y], x[at.z], x[at.w]);
    for (var part = 1u; part < p.parts; part++) {
        at += vec4(p.len);
        sum += vec4(x[at.x], x[at.y], x[at.z], x[at.w]);
    }
    store(own, own < vec4(p.len), sum);
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.fours) {
        sum_at(i);
    }
}
