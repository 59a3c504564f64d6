// batch_norm: y = f(gamma (x - mean) deviation + beta)
// x [n, c, h, w], mean, deviation, gamma, beta [c] -> y [n, c, h, w], or in place
// With GRAD, batch_norm_grad: dx = gamma deviation (g - mean of g - x̂ mean of g x̂), g being dy where the activation lets it
// pass: dy as x [n, c, h, w], both (see batch_norm_sums_end), x as held [n, c, h, w] -> dx as y, or in place of dy
// grid: one thread per element (or four, where the plane is a multiple of four), folded      overrides: ACTIVATION
#import common/grid
#import common/elem
#if GRAD
#import common/held
#endif
#import common/operand
#import common/activation
override ACTIVATION: u32 = 0u;
struct Params {
    threads_x: u32,
    total: u32,
    plane: u32,
    channels: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#if GRAD
@group(0) @binding(4) var<storage, read_write> both: array<vec4<f32>>;
#else
@group(0) @binding(3) var<storage, read_write> mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(5) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(6) var<storage, read_write> beta: array<f32>;
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.total) {
        return;
    }
    let c = i / p.plane % p.channels;
#if GRAD
    let own = both[c * 2u];
    let means = both[c * 2u + 1u];
    let v = held_at(i);
    let g = passed(norm(v, Elem(own.x), Elem(own.y * own.z), Elem(own.w)), x_at(i), ACTIVATION);
    let standard = (v - own.x) * own.y;
    // Without training not by a factor of 0: where x is NaN and dy is 0, dx is 0.
    let share = select(Elem(0.0), means.x + standard * means.y, means.z == 1.0);
    set_y(i, own.y * own.z * (g - share));
#else
    set_y(i, activated(norm(x_at(i), Elem(mean[c]), Elem(deviation[c] * gamma[c]), Elem(beta[c])), ACTIVATION));
#endif
}
