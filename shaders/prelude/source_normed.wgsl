// A convolution reads a batch norm of its source, f(gamma (x - mean) deviation + beta): no tensor holds it.
override ACTIVATION: u32 = 0u;
@group(0) @binding(5) var<storage, read_write> mean: array<f32>;
@group(0) @binding(6) var<storage, read_write> deviation: array<f32>;
@group(0) @binding(7) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(8) var<storage, read_write> beta: array<f32>;

struct Terms {
    mean: vec4<f32>,
    scale: vec4<f32>,
    beta: vec4<f32>,
}
fn terms_of(channel: u32) -> Terms {
    let scale = deviation[channel] * gamma[channel];
    return Terms(vec4(mean[channel]), vec4(scale), vec4(beta[channel]));
}
// Of four elements in channels of their own.
fn terms_of_each(c: vec4<u32>) -> Terms {
    let inverse = vec4(deviation[c.x], deviation[c.y], deviation[c.z], deviation[c.w]);
    return Terms(
        vec4(mean[c.x], mean[c.y], mean[c.z], mean[c.w]),
        inverse * vec4(gamma[c.x], gamma[c.y], gamma[c.z], gamma[c.w]),
        vec4(beta[c.x], beta[c.y], beta[c.z], beta[c.w]),
    );
}
fn read(v: vec4<f32>, terms: Terms) -> vec4<f32> {
    return activated(norm(v, terms.mean, terms.scale, terms.beta), ACTIVATION);
}
