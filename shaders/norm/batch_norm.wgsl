// batch_norm: y = f(gamma (x - mean) deviation + beta)
// x [n, c, h, w], mean, deviation, gamma, beta [c] -> y [n, c, h, w], or in place
// grid: one thread per element (or four, where the plane is a multiple of four), folded      overrides: ACTIVATION
#import common/grid
#import common/elem
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
@group(0) @binding(3) var<storage, read_write> mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(5) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(6) var<storage, read_write> beta: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.total) {
        return;
    }
    let c = i / p.plane % p.channels;
    set_y(i, activated(norm(x_at(i), Elem(mean[c]), Elem(deviation[c] * gamma[c]), Elem(beta[c])), ACTIVATION));
}
