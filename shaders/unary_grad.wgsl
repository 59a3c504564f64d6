// unary_grad: dx = dy f'(s), s the input or the output of f
// dy as x [n], s [n] -> dx as y [n], or in place of dy
// grid: threads of four elements, folded      overrides: F
struct Params {
    threads_x: u32,
    quads: u32,
    a: f32,
    b: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> s: array<InMemory>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        set_y(i, x_at(i) * unary_slope(from_memory(s[i]), p.a, p.b));
    }
}
