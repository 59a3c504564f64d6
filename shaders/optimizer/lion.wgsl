// lion: w = (1 - rate decay) w - rate sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g
// w [n], g [n], scalars [9] (graph::StepScalars), m [n] -> w, m
// grid: threads of four elements, folded      overrides: none
#import common/grid
#import optimizer/weight
struct Params {
    threads_x: u32,
    quads: u32,
    beta1: f32,
    beta2: f32,
    weight_decay: f32,
    rate: f32, // factor of the step's learning rate
    key: u32,
    first: u32, // vec4s of the parameter before those updated
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read_write> m: array<InMemory>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    // After a branch lavapipe would read these lane by lane.
    let is_skipped = scalars[7] != 0u;
    let rate = p.rate * bitcast<f32>(scalars[0]);
    let unscale = bitcast<f32>(scalars[6]);
    if (i >= p.quads || is_skipped) {
        return;
    }
    let gradient = unscale * held_at(i);
    let momentum = from_memory(m[i]);
    let blend = mix(gradient, momentum, p.beta1);
    let towards = or_nan(blend, sign(blend));
    set_weight(i, (1.0 - rate * p.weight_decay) * weight_at(i) - rate * towards);
    m[i] = to_memory(mix(gradient, momentum, p.beta2));
}
