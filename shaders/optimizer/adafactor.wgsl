// adafactor: the last step. w = (1 - rate decay) w - alpha / max(1, rms(u) / d) u, alpha = max(eps, rms(w)) rho
// w [n], u [n], scalars [9] (graph::StepScalars; rho in place of sqrt_bias2), u2 = Σ u² [], w2 = Σ w² [] -> w
// grid: threads of four elements, folded      overrides: none
#import common/grid
#import optimizer/weight
struct Params {
    threads_x: u32,
    quads: u32,
    n: f32,
    eps: f32,
    d: f32,
    weight_decay: f32,
    rate: f32, // factor of the step's learning rate
    key: u32,
    first: u32, // vec4s of the parameter before those updated
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read_write> u2: array<f32>;
@group(0) @binding(5) var<storage, read_write> w2: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    // After a branch lavapipe would read these lane by lane.
    let is_skipped = scalars[7] != 0u;
    let rate = p.rate * bitcast<f32>(scalars[0]);
    let rho = p.rate * bitcast<f32>(scalars[2]);
    // As in PyTorch, a NaN somewhere leaves the other elements alone; what `max` makes of it is the driver's choice.
    let size = sqrt(w2[0] / p.n);
    let alpha = select(p.eps, size, size > p.eps) * rho;
    let excess = sqrt(u2[0] / p.n) / p.d;
    let limit = select(1.0, excess, excess > 1.0);
    if (i >= p.quads || is_skipped) {
        return;
    }
    set_weight(i, (1.0 - rate * p.weight_decay) * weight_at(i) - alpha / limit * held_at(i));
}
