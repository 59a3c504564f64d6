// A function of one element, y = f(x), or with GRADIENT its gradient: dx = dy f'(s), s the input or the output of f; with DROPOUT
// y = x / (1 - p) where a random number is at least p, else 0
// x [n] -> y [n], or in place      GRADIENT: dy as x [n], s [n] -> dx as y [n], or in place of dy
// DROPOUT: x [n], scalars [9] (graph::StepScalars) -> y [n], or in place
// grid: a thread per four elements, folded      overrides: F, with DROPOUT EVERY (steps that draw the same numbers)
#import common/grid
#import common/elem
#import common/operand
#if DROPOUT
#import common/random
override EVERY: u32 = 1u;
struct Params {
    threads_x: u32,
    quads: u32,
    key: u32,
    threshold: u32,
    scale: f32,
}
@group(0) @binding(3) var<storage, read_write> scalars: array<u32>;
#else
#import elementwise/unary_functions
struct Params {
    threads_x: u32,
    quads: u32,
    a: f32,
    b: f32,
}
#endif
@group(0) @binding(0) var<uniform> p: Params;
#if GRADIENT
@group(0) @binding(3) var<storage, read_write> s: array<InMemory>;
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
#if GRADIENT
        set_y(i, x_at(i) * unary_slope(from_memory(s[i]), p.a, p.b));
#elif DROPOUT
        set_y(i, dropout(x_at(i), i, p.key, EVERY, p.threshold, p.scale));
#else
        set_y(i, unary(x_at(i), p.a, p.b));
#endif
    }
}
