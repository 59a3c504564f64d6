// running_stats: r += momentum (s - r) for a mean and a variance, the batch's variance made unbiased
// mean [c], var [c], batch_mean [c], batch_var [c] -> mean and var in place
// grid: one thread per channel, folded      overrides: none
#import common/grid
struct Params {
    threads_x: u32,
    channels: u32,
    momentum: f32,
    unbias: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> mean: array<f32>;
@group(0) @binding(2) var<storage, read_write> variance: array<f32>;
@group(0) @binding(3) var<storage, read_write> batch_mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> batch_variance: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = thread_number(id, p.threads_x);
    if (c < p.channels) {
        mean[c] = (1.0 - p.momentum) * mean[c] + p.momentum * batch_mean[c];
        variance[c] = (1.0 - p.momentum) * variance[c] + p.momentum * (batch_variance[c] * p.unbias);
    }
}
