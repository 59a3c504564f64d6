// fill: y = bits
// y [n] u32 or f32
// grid: threads of four elements, folded      overrides: none
struct Params {
    threads_x: u32,
    quads: u32,
    bits: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        y[i] = vec4(p.bits);
    }
}
