// adam_mini: m = b1 m + (1-b1) g; w = (1 - rate decay) w - rate m / bias1 / (√v / sqrt_bias2 + eps), v of the row
// w [rows, columns], g, scalars [9] (graph::StepScalars), m, v [rows] -> w, m
// grid: threads of four elements, folded      overrides: none
#import common/grid
#import optimizer/weight
struct Params {
    threads_x: u32,
    quads: u32,
    beta1: f32,
    eps: f32,
    weight_decay: f32,
    columns: u32,
    rate: f32, // factor of the step's learning rate
    key: u32,
    first: u32, // vec4s of the parameter before those updated
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read_write> m: array<InMemory>;
@group(0) @binding(5) var<storage, read_write> v: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    // After a branch lavapipe would read these lane by lane.
    let is_skipped = scalars[7] != 0u;
    let rate = p.rate * bitcast<f32>(scalars[0]);
    let step = rate / bitcast<f32>(scalars[1]);
    let root = 1.0 / bitcast<f32>(scalars[2]);
    let unscale = bitcast<f32>(scalars[6]);
    if (i >= p.quads || is_skipped) {
        return;
    }
    let gradient = unscale * held_at(i);
    let first = mix(gradient, from_memory(m[i]), p.beta1);
    m[i] = to_memory(first);
    // Rows past the last element are in the padding of `v`, which is a multiple of 16 bytes, too.
    let row = (vec4(4u * i) + vec4(0u, 1u, 2u, 3u)) / p.columns;
    let second = vec4(v[row.x], v[row.y], v[row.z], v[row.w]);
    let divided = sqrt(second) * root + p.eps;
    set_weight(i, (1.0 - rate * p.weight_decay) * weight_at(i) - step * first / divided);
}
