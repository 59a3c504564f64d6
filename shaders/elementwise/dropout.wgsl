// dropout: y = x / (1 - p) where a random number is at least p, else 0
// x [n], scalars [9] (graph::StepScalars) -> y [n], or in place
// grid: threads of four elements, folded      overrides: EVERY (steps that draw the same numbers)
#import common/grid
#import common/elem
#import common/operand
#import common/random
override EVERY: u32 = 1u;
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
        set_y(i, dropout(x_at(i), i, p.key, EVERY, p.threshold, p.scale));
    }
}
