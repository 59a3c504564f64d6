// unary: y = f(x)
// x [n] -> y [n], or in place
// grid: threads of four elements, folded      overrides: F
struct Params {
    threads_x: u32,
    quads: u32,
    a: f32,
    b: f32,
}
@group(0) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        set_y(i, unary(x_at(i), p.a, p.b));
    }
}
