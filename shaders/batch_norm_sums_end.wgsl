// batch_norm_sums_end: dbeta = Σ g, dgamma = Σ g x̂, and for each channel what batch_norm_grad reads in one place
// parts [2, parts, c], mean, deviation, gamma, beta [c] -> dgamma [c], dbeta [c], both [c, 2] of vec4:
//   (mean, deviation, gamma, beta), (dbeta / count, dgamma / count, training, -), the second zero where not training
// grid: one thread per channel, folded by grid_x      overrides: none
@group(0) @binding(1) var<storage, read_write> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(4) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(5) var<storage, read_write> beta: array<f32>;
@group(0) @binding(6) var<storage, read_write> dgamma: array<f32>;
@group(0) @binding(7) var<storage, read_write> dbeta: array<f32>;
@group(0) @binding(8) var<storage, read_write> both: array<vec4<f32>>;

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channel = (wg.y * p.grid_x + wg.x) * 8u + thread;
    if (channel >= p.channels) {
        return;
    }
    var sum = 0.0;
    var products = 0.0;
    for (var part = 0u; part < p.parts; part++) {
        sum += parts[part * p.channels + channel];
        products += parts[(p.parts + part) * p.channels + channel];
    }
    dbeta[channel] = sum;
    dgamma[channel] = products;
    both[channel * 2u] = vec4(mean[channel], deviation[channel], gamma[channel], beta[channel]);
    // Not by a factor of 0: NaN in one sample must not reach the others.
    let means = select(vec2(0.0), vec2(sum, products) / f32(p.count), p.training == 1u);
    both[channel * 2u + 1u] = vec4(means, f32(p.training), 0.0);
}
