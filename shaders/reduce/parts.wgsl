// sum_parts: c = x[0] + x[1] + .., in this order, and what an epilogue makes of it
// sum_parts_on, with SUM: c = sum + x[0] + x[1] + .., in place of the sum with IN_PLACE
// sum [len], x [parts, len] -> c [len]
// grid: one thread per element, with STORE_VEC4 per four, folded      overrides: none
#import common/grid
#import common/store
struct Params {
    threads_x: u32,
    threads: u32,
    parts: u32,
    @align(16) rest: Rest,
}
@group(0) @binding(0) var<uniform> p: Params;
#if STORE_VEC4
// Lengths that are multiples of four.
alias Part = vec4<f32>;
#else
alias Part = f32;
#endif
@group(0) @binding(2) var<storage, read_write> x: array<Part>;
@group(0) @binding(3) var<storage, read_write> c: array<Part>;
#if SUM && !IN_PLACE
@group(0) @binding(1) var<storage, read_write> sum_before: array<Part>;
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.threads) {
#if SUM && IN_PLACE
        var sum = c[i];
        var part = 0u;
#elif SUM
        var sum = sum_before[i];
        var part = 0u;
#else
        var sum = x[i];
        var part = 1u;
#endif
        for (; part < p.parts; part++) {
            sum += x[part * p.threads + i];
        }
        store(i, sum);
    }
}
