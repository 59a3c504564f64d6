// RMSprop and Adagrad, and with MOMENTUM the average of their steps.
#import common/grid
#import optimizer/weight
#if MOMENTUM
// rmsprop_momentum: as rmsprop with one more state.
@group(0) @binding(5) var<storage, read_write> b: array<InMemory>;
fn gathered(i: u32, divided: vec4<f32>) -> vec4<f32> {
    let after = p.momentum * from_memory(b[i]) + divided;
    b[i] = to_memory(after);
    return after;
}
#else
fn gathered(i: u32, divided: vec4<f32>) -> vec4<f32> { return divided; }
#endif

// rmsprop: g += decay w; s = keep s + take g²; u = g / (√s + eps); with MOMENTUM b = momentum b + u, u = b; w -= rate / bias1 u
//   Adagrad keeps and takes 1
// w [n], g [n], scalars [9] (graph::StepScalars), s [n], b [n] with MOMENTUM (else bound nowhere) -> w, s, b
// grid: threads of four elements, folded      overrides: none
struct Params {
    threads_x: u32,
    quads: u32,
    keep: f32,
    take: f32,
    eps: f32,
    momentum: f32,
    weight_decay: f32,
    rate: f32, // factor of the step's learning rate
    key: u32,
    first: u32, // vec4s of the parameter before those updated
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read_write> s: array<InMemory>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    // After a branch lavapipe would read these lane by lane.
    let is_skipped = scalars[7] != 0u;
    let rate = p.rate * bitcast<f32>(scalars[0]) / bitcast<f32>(scalars[1]);
    let unscale = bitcast<f32>(scalars[6]);
    if (i >= p.quads || is_skipped) {
        return;
    }
    let weight = weight_at(i);
    let gradient = unscale * held_at(i) + p.weight_decay * weight;
    let squares = p.keep * from_memory(s[i]) + p.take * gradient * gradient;
    s[i] = to_memory(squares);
    set_weight(i, weight - rate * gathered(i, gradient / (sqrt(squares) + p.eps)));
}
