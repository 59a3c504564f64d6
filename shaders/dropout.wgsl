// dropout: y = x / (1 - p) where a random number is at least p, else 0
// x [n], scalars [8] (graph::StepScalars) -> y [n], or in place
// The mask is a function of (seed, step, key, element) by pcg4d (Jarzynski & Olano 2020): drawn again, it is the same.
// grid: threads of four elements, folded      overrides: none
struct Params {
    threads_x: u32,
    quads: u32,
    key: u32,
    threshold: u32,
    scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> scalars: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        let step = scalars[3];
        let drawn = pcg4d(vec4(i, p.key, step ^ scalars[5], scalars[4]));
        y[i] = select(vec4(0.0), x_at(i) * p.scale, drawn >= vec4(p.threshold));
    }
}
