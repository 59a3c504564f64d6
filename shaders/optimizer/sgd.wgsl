// SGD, and with MOMENTUM its velocity.
#import common/grid
#import optimizer/weight
#if MOMENTUM
// sgd with one state: the step is what the gradients have gathered.
@group(0) @binding(4) var<storage, read_write> v: array<InMemory>;
fn velocity(i: u32, gradient: vec4<f32>) -> vec4<f32> {
    let gathered = p.momentum * from_memory(v[i]) + gradient;
    v[i] = to_memory(gathered);
    return select(gathered, gradient + p.momentum * gathered, NESTEROV);
}
#else
// sgd without state: the step is the gradient.
override CORRECTED: bool = false;
fn velocity(i: u32, gradient: vec4<f32>) -> vec4<f32> { return gradient; }
#endif

// sgd: g += decay w; with MOMENTUM v = momentum v + g, g = v or (NESTEROV) g + momentum v; w -= rate g
// w [n], g [n], scalars [9] (graph::StepScalars), v [n] with MOMENTUM (else bound nowhere) -> w, v
// grid: threads of four elements, folded      overrides: NESTEROV, CORRECTED (gradients times √bias2 / bias1)
override NESTEROV: bool = false;
struct Params {
    threads_x: u32,
    quads: u32,
    weight_decay: f32,
    momentum: f32,
    rate: f32, // factor of the step's learning rate
    key: u32,
    first: u32, // vec4s of the parameter before those updated
}
@group(0) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    // After a branch lavapipe would read these lane by lane.
    let is_skipped = scalars[7] != 0u;
    let rate = p.rate * bitcast<f32>(scalars[0]);
    var unscale = bitcast<f32>(scalars[6]);
#if !MOMENTUM
    unscale = select(unscale, unscale * bitcast<f32>(scalars[2]) / bitcast<f32>(scalars[1]), CORRECTED);
#endif
    if (i >= p.quads || is_skipped) {
        return;
    }
    let weight = weight_at(i);
    set_weight(i, weight - rate * velocity(i, unscale * held_at(i) + p.weight_decay * weight));
}
