// Adam, and with AMSGRAD the largest second moment so far.
#import common/grid
#import optimizer/weight
#if AMSGRAD
#import common/nan
// adam_amsgrad: as adam, with most = max(most, v) in place of v in the step.
@group(0) @binding(6) var<storage, read_write> most: array<InMemory>;
fn divisor(i: u32, second: vec4<f32>) -> vec4<f32> {
    let before = from_memory(most[i]);
    // NaN stays: the second moment is NaN from then on. A comparison would not do: NVIDIA's compiler makes `max` of it.
    let after = or_nan4(second, max(before, second));
    most[i] = to_memory(after);
    return after;
}
#else
fn divisor(i: u32, second: vec4<f32>) -> vec4<f32> { return second; }
#endif

// adam: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g²; w -= rate (m / bias1 + share g) / (√v / sqrt_bias2 + eps)
//   before it g += decay w, or with DECOUPLED (AdamW) w *= 1 - rate decay; sqrt_bias2 = 0 stands for a divisor of 1
// w [n], g [n], scalars [9] (graph::StepScalars), m [n], v [n], most [n] with AMSGRAD (else bound nowhere) -> w, m, v, most
// grid: a thread for every 4 each elements, whole workgroups of 256, folded      overrides: DECOUPLED
override DECOUPLED: bool = false;
struct Params {
    threads_x: u32,
    quads: u32,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
    each: u32, // vec4s of a thread
    rate: f32, // factor of the step's learning rate
    key: u32,
    first: u32, // vec4s of the parameter before those updated
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read_write> m: array<InMemory>;
@group(0) @binding(5) var<storage, read_write> v: array<InMemory>;

// A workgroup owns 256 each quads in a row; what is the same for all of them is read once for those of a thread.
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let thread = thread_number(id, p.threads_x);
    // After a branch lavapipe would read these lane by lane.
    let is_skipped = scalars[7] != 0u;
    let rate = p.rate * bitcast<f32>(scalars[0]);
    let step = rate / bitcast<f32>(scalars[1]);
    let unscale = bitcast<f32>(scalars[6]);
    let sqrt_bias2 = bitcast<f32>(scalars[2]);
    let is_plain = sqrt_bias2 == 0.0;
    let root = 1.0 / select(sqrt_bias2, 1.0, is_plain);
    let share = rate * bitcast<f32>(scalars[8]);
    if (is_skipped) {
        return;
    }
    let first_quad = thread / 256u * 256u * p.each + thread % 256u;
    let end = min(first_quad + 256u * p.each, p.quads);
    for (var i = first_quad; i < end; i += 256u) {
        var weight = weight_at(i);
        var gradient = unscale * held_at(i);
        if (DECOUPLED) {
            weight *= 1.0 - rate * p.weight_decay;
        } else {
            gradient += p.weight_decay * weight;
        }
        let first = mix(gradient, from_memory(m[i]), p.beta1);
        let second = p.beta2 * from_memory(v[i]) + (1.0 - p.beta2) * gradient * gradient;
        m[i] = to_memory(first);
        v[i] = to_memory(second);
        let divided = select(sqrt(divisor(i, second)) * root + p.eps, vec4(1.0), is_plain);
        set_weight(i, weight - (step * first + share * gradient) / divided);
    }
}
