// A function of one element, y = f(x), or with GRADIENT its gradient: dx = dy f'(s), s the input or the output of f
// x [n] -> y [n], or in place      GRADIENT: dy as x [n], s [n] -> dx as y [n], or in place of dy
// grid: a thread per four elements, folded      overrides: F
#import common/grid
#import common/elem
#import common/operand
#import elementwise/unary_functions
struct Params {
    threads_x: u32,
    quads: u32,
    a: f32,
    b: f32,
}
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
#else
        set_y(i, unary(x_at(i), p.a, p.b));
#endif
    }
}
