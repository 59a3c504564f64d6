// half_unpack: y = x in 32 bits, from two elements to a word
// x [n] f16 or bf16, as the prelude says -> y [n] f32
// grid: threads of eight elements, folded      overrides: none
struct Params {
    threads_x: u32,
    eights: u32,
    quads: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.eights) {
        let words = x[i];
        y[2u * i] = widened(words.xy);
        if (2u * i + 1u < p.quads) {
            y[2u * i + 1u] = widened(words.zw);
        }
    }
}
