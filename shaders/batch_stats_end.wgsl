// batch_stats_end: mean, 1 / sqrt(variance + eps) and variance of each channel from its parts' means and squares
// parts [2, parts, c] (see batch_stats) -> mean [c], deviation [c], variance [c]
// grid: one thread per channel, folded by grid_x      overrides: none
@group(0) @binding(1) var<storage, read_write> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(4) var<storage, read_write> variance: array<f32>;

fn elements_of(part: u32) -> f32 {
    return f32(min(p.part_len, p.count - part * p.part_len));
}

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channel = (wg.y * p.grid_x + wg.x) * 8u + thread;
    if (channel >= p.channels) {
        return;
    }
    let first = parts[channel];
    var sum = 0.0;
    for (var part = 0u; part < p.parts; part++) {
        sum += elements_of(part) * (parts[part * p.channels + channel] - first);
    }
    let centre = first + sum / f32(p.count);
    // Squares about the mean of all parts; and how far rounding left it from the mean.
    sum = 0.0;
    var squares = 0.0;
    for (var part = 0u; part < p.parts; part++) {
        let off = parts[part * p.channels + channel] - centre;
        let elements = elements_of(part);
        sum += elements * off;
        squares += fma(elements * off, off, parts[(p.parts + part) * p.channels + channel]);
    }
    let rest = sum / f32(p.count);
    let v = squares / f32(p.count) - rest * rest;
    // No `max`: it would return zero for a NaN.
    let spread = select(v, 0.0, v < 0.0);
    mean[channel] = centre + rest;
    deviation[channel] = 1.0 / sqrt(spread + p.eps);
    variance[channel] = spread;
}
