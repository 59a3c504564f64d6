// Sums for the gradient of batch norm: of parts, with END of all parts, with WHOLE of channels that are one part, without
// an activation: with one there would be more bindings than every adapter has.
#import norm/channels
#import common/jobs
@group(0) @binding(3) var<storage, read_write> mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(5) var<storage, read_write> gamma: array<f32>;
#if END || WHOLE
@group(0) @binding(6) var<storage, read_write> dgamma: array<f32>;
@group(0) @binding(7) var<storage, read_write> dbeta: array<f32>;
@group(0) @binding(8) var<storage, read_write> both: array<vec4<f32>>;

fn store_sums(channel: u32, sum: f32, products: f32, shift: f32) {
    dbeta[channel] = sum;
    dgamma[channel] = products;
    both[channel * 2u] = vec4(mean[channel], deviation[channel], gamma[channel], shift);
    // Not by a factor of 0: NaN in one sample must not reach the others.
    let means = select(vec2(0.0), vec2(sum, products) / f32(p.count), p.training == 1u);
    both[channel * 2u + 1u] = vec4(means, f32(p.training), 0.0);
}
#endif
#if END
// batch_norm_sums_end: dbeta = Σ g, dgamma = Σ g x̂, and for each channel what batch_norm_grad reads in one place
// parts [2, parts, c], beta, mean, deviation, gamma [c] -> dgamma [c], dbeta [c], both [c, 2] of vec4:
//   (mean, deviation, gamma, beta), (dbeta / count, dgamma / count, training, -), the second zero where not training
// grid: one thread (CPU) or workgroup (GPU) per channel, folded by grid_x      overrides: none
@group(0) @binding(1) var<storage, read_write> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> beta: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channel = job_of(wg.y * p.grid_x + wg.x, thread);
    let lane = lane_of(thread);
    if (channel >= p.channels) {
        return;
    }
    var sum = 0.0;
    var products = 0.0;
    for (var part = lane; part < p.parts; part += GROUP) {
        sum += parts[part * p.channels + channel];
        products += parts[(p.parts + part) * p.channels + channel];
    }
    sum = group_sum(lane, sum);
    products = group_sum(lane, products);
    if (lane == 0u) {
        store_sums(channel, sum, products, beta[channel]);
    }
}
#else
#import common/elem
#import common/held
#import common/activation
// batch_norm_sums: Σ g and Σ g (x - mean) deviation of a part of a channel, g being dy where the activation lets it pass
// x as held, dy [n, c, h, w], mean, deviation, gamma, beta [c] -> parts [2, parts, c]; with WHOLE without beta, what
// batch_norm_sums_end computes
// grid: one thread (CPU) or workgroup (GPU) per channel and part, folded      overrides: none
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
#if !WHOLE
@group(0) @binding(6) var<storage, read_write> beta: array<f32>;
@group(0) @binding(7) var<storage, read_write> parts: array<f32>;
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
    let mu = mean[channel];
    let inverse = deviation[channel];
#if !WHOLE
    let scale = inverse * gamma[channel];
    let shift = beta[channel];
#endif
    let start = part * p.part_len + lane;
    let end = min(part * p.part_len + p.part_len, p.count);
    var at = start / p.plane * p.channels * p.plane + channel * p.plane;
    var pixel = start % p.plane;
    var sum = 0.0;
    var products = 0.0;
    var i = start;
    while (i < end) {
        // In blocks of 64: one long sum would lose the digits of its terms.
        let last = i + min(64u * GROUP, end - i);
        var block_sum = 0.0;
        var block_products = 0.0;
        for (; i < last; i += GROUP) {
            let v = held_at(at + pixel);
#if WHOLE
            let g = dy[at + pixel];
#else
            let g = passed(norm(v, mu, scale, shift), dy[at + pixel], p.activation);
#endif
            block_sum += g;
            block_products = fma(g, (v - mu) * inverse, block_products);
            pixel += GROUP;
            // Dividing is dear where one step is enough.
            let over = select(pixel / p.plane, select(0u, 1u, pixel >= p.plane), GROUP == 1u);
            pixel -= over * p.plane;
            at += over * p.channels * p.plane;
        }
        sum += block_sum;
        products += block_products;
    }
    sum = group_sum(lane, sum);
    products = group_sum(lane, products);
    if (lane == 0u) {
#if WHOLE
        store_sums(channel, sum, products, 0.0);
#else
        parts[job] = sum;
        parts[p.parts * p.channels + job] = products;
#endif
    }
}
#endif
