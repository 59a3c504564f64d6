// Mean and deviation of channels: of parts, with END of all parts, with WHOLE of channels that are one part. With RUNNING they
// move the running statistics, alone too.
#if RUNNING
fn moved(old: f32, batch: f32) -> f32 { return (1.0 - p.momentum) * old + p.momentum * batch; }
#endif
#if RUNNING && !END && !WHOLE
// running_stats: r += momentum (s - r) for a mean and a variance, the batch's variance made unbiased, of one part after another
// mean [c], var [c], batch_mean [parts, c], batch_var [parts, c] -> mean and var in place
// grid: one thread per channel, folded      overrides: none
#import common/grid
struct Params {
    threads_x: u32,
    channels: u32,
    parts: u32,
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
        for (var part = 0u; part < p.parts; part++) {
            let at = part * p.channels + c;
            mean[c] = moved(mean[c], batch_mean[at]);
            variance[c] = moved(variance[c], batch_variance[at] * p.unbias);
        }
    }
}
#else
#import norm/channels
#import common/jobs
#if END || WHOLE
#import common/nan
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(4) var<storage, read_write> variance: array<f32>;
#if RUNNING
@group(0) @binding(5) var<storage, read_write> running_mean: array<f32>;
@group(0) @binding(6) var<storage, read_write> running_variance: array<f32>;
#endif

fn store_stats(channel: u32, middle: f32, v: f32) {
    let spread = or_nan1(v, max(v, 0.0));
    mean[channel] = middle;
    deviation[channel] = 1.0 / sqrt(spread + p.eps);
    variance[channel] = spread;
#if RUNNING
    running_mean[channel] = moved(running_mean[channel], middle);
    running_variance[channel] = moved(running_variance[channel], spread * p.unbias);
#endif
}
#endif
#if END
// batch_stats_end: mean, 1 / sqrt(variance + eps) and variance of each channel from its parts' means and squares
// parts [2, parts, c] (see batch_stats) -> mean [c], deviation [c], variance [c]; running mean and variance
// grid: one thread (CPU) or workgroup (GPU) per channel, folded by grid_x      overrides: none
@group(0) @binding(1) var<storage, read_write> parts: array<f32>;

fn elements_of(part: u32) -> f32 { return f32(min(p.part_len, p.count - part * p.part_len)); }

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channel = job_of(wg.y * p.grid_x + wg.x, thread);
    let lane = lane_of(thread);
    if (channel >= p.channels) {
        return;
    }
    let first = parts[channel];
    var sum = 0.0;
    for (var part = lane; part < p.parts; part += GROUP) {
        sum += elements_of(part) * (parts[part * p.channels + channel] - first);
    }
    let centre = first + group_sum(lane, sum) / f32(p.count);
    // Squares about the mean of all parts; and how far rounding left it from the mean.
    sum = 0.0;
    var squares = 0.0;
    for (var part = lane; part < p.parts; part += GROUP) {
        let off = parts[part * p.channels + channel] - centre;
        let elements = elements_of(part);
        sum += elements * off;
        squares += fma(elements * off, off, parts[(p.parts + part) * p.channels + channel]);
    }
    let rest = group_sum(lane, sum) / f32(p.count);
    squares = group_sum(lane, squares) / f32(p.count) - rest * rest;
    if (lane == 0u) {
        store_stats(channel, centre + rest, squares);
    }
}
#else
#import common/elem
#import common/held
// batch_stats: the mean of a part of a channel, and Σ (x - mean)² of it
// x as held [n, c, h, w] -> parts [2, parts, c], or with WHOLE what batch_stats_end computes
// grid: one thread (CPU) or workgroup (GPU) per channel and part, folded      overrides: none
#if !WHOLE
@group(0) @binding(2) var<storage, read_write> parts: array<f32>;
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let job = job_of(wg.y * p.grid_x + wg.x, thread);
    let lane = lane_of(thread);
    if (job >= p.parts * p.channels) {
        return;
    }
    let part = job / p.channels;
    let channel = job - part * p.channels;
    let start = part * p.part_len + lane;
    let end = min(part * p.part_len + p.part_len, p.count);
    var at = start / p.plane * p.channels * p.plane + channel * p.plane;
    var pixel = start % p.plane;
    // Sums of x - pivot and its square lose their digits where the pivot is far from the mean. So the pivot becomes the mean
    // of what was seen after every block, the first blocks being short: any element may be the one that is far.
    var pivot = 0.0;
    if (start < end) {
        pivot = held_at(at + pixel);
    }
    var seen = 0u;
    var sum = 0.0;
    var squares = 0.0;
    var block = 4u;
    var i = start;
    while (i < end) {
        let last = i + min(block * GROUP, end - i);
        var block_sum = 0.0;
        var block_squares = 0.0;
        for (; i < last; i += GROUP) {
            let v = held_at(at + pixel) - pivot;
            block_sum += v;
            block_squares = fma(v, v, block_squares);
            seen++;
            pixel += GROUP;
            // Dividing is dear where one step is enough.
            let over = select(pixel / p.plane, select(0u, 1u, pixel >= p.plane), GROUP == 1u);
            pixel -= over * p.plane;
            at += over * p.channels * p.plane;
        }
        sum += block_sum;
        squares += block_squares;
        let mean = pivot + sum / f32(seen);
        let step = mean - pivot;
        squares -= step * (2.0 * sum - f32(seen) * step);
        sum -= f32(seen) * step;
        pivot = mean;
        block = min(2u * block, 64u);
    }
    // The lanes' means and squares, brought to one pivot that is near the mean of all.
    let own = f32(seen);
    let all = group_sum(lane, own);
    let centre = group_sum(lane, own * pivot) / all;
    let off = pivot - centre;
    let rest = group_sum(lane, own * off) / all;
    squares = group_sum(lane, squares + own * off * off) - all * rest * rest;
    if (lane == 0u) {
#if WHOLE
        store_stats(channel, centre + rest, squares / f32(p.count));
#else
        parts[job] = centre + rest;
        parts[p.parts * p.channels + job] = squares;
#endif
    }
}
#endif
#endif
