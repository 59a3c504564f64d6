// mask_grad: dx = dy where the element's bit is set, else slope dy
// dy as x [n], bits [n / 32] -> dx as y [n], or in place of dy
// grid: threads of four elements, folded      overrides: none
struct Params {
    threads_x: u32,
    quads: u32,
    slope: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> bits: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        let mine = (vec4(bits[i / 8u] >> (i % 8u * 4u)) & vec4(1u, 2u, 4u, 8u)) != vec4(0u);
        // The product that unary_grad.wgsl makes: the same bits.
        set_y(i, x_at(i) * select(vec4(p.slope), vec4(1.0), mine));
    }
}
