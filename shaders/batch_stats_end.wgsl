// batch_stats_end: mean, 1 / sqrt(variance + eps) and variance of each channel from the sums of batch_stats
// parts [2, parts, c], x [n, c, h, w] -> mean [c], deviation [c], variance [c]
// grid: one thread per channel, folded by grid_x      overrides: none
@group(0) @binding(1) var<storage, read_write> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(5) var<storage, read_write> variance: array<f32>;

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channel = (wg.y * p.grid_x + wg.x) * 8u + thread;
    if (channel >= p.channels) {
        return;
    }
    var sum = 0.0;
    var squares = 0.0;
    for (var part = 0u; part < p.parts; part++) {
        sum += parts[part * p.channels + channel];
        squares += parts[(p.parts + part) * p.channels + channel];
    }
    let shifted = sum / f32(p.count);
    let v = max(0.0, squares / f32(p.count) - shifted * shifted);
    mean[channel] = x[channel * p.plane] + shifted;
    deviation[channel] = 1.0 / sqrt(v + p.eps);
    variance[channel] = v;
}
