// half_pack: y = x in 16 bits, two elements to a word, the first in the lower half
// x [n] f32 -> y [n] f16 or bf16, as the prelude says
// grid: threads of eight elements, folded      overrides: none
struct Params {
    threads_x: u32,
    eights: u32,
    quads: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

fn four(i: u32) -> vec2<u32> {
    let lanes = to_half(x[i]);
    return lanes.xz | (lanes.yw << vec2(16u));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.eights) {
        // Behind an odd number of fours nothing is read; what is written there is padding.
        y[i] = vec4(four(2u * i), four(min(2u * i + 1u, p.quads - 1u)));
    }
}
