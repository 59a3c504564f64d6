// moving_average: y = s = s + share (scale x - s), share being p.share, or where that is 0 what the step's scalars say (bias1)
// s [n], x [n], scalars [9] (graph::StepScalars) -> s, y [n]
// grid: threads of four elements, folded      overrides: none
#import common/grid
#import common/elem
struct Params {
    threads_x: u32,
    quads: u32,
    scale: f32,
    share: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> s: array<InMemory>;
@group(0) @binding(2) var<storage, read_write> x: array<InMemory>;
@group(0) @binding(3) var<storage, read_write> scalars: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<InMemory>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.quads) {
        return;
    }
    var moved = from_memory(s[i]);
    if (scalars[7] == 0u) {
        let share = select(p.share, bitcast<f32>(scalars[1]), p.share == 0.0);
        moved = mix(moved, p.scale * from_memory(x[i]), share);
        s[i] = to_memory(moved);
    }
    y[i] = to_memory(moved);
}
