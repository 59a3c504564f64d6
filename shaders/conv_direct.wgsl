// conv_direct: convolution, or the gradient of its image, for few channels in a group and for small subgroups
// src [batch, groups * kc, h, w], weights as strides say, bias [groups * m]? -> c [batch, groups * m, h', w']
// grid: one thread per element of the result's phase, folded: tiles_m threads in x      overrides: none
// requires: for lavapipe at most 65,000 turns of the loops over taps and channels
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.tiles_m);
    let plane = p.y.count * p.x.count;
    let channels = p.groups * p.m;
    if (i >= p.batch * channels * plane) {
        return;
    }
    let at = i % plane;
    let channel = i / plane % channels;
    let image = i / plane / channels;
    let qy = at / p.x.count;
    let qx = at % p.x.count;
    let group = channel / p.m;
    let bases = bases_of(vec4(image), group);
    let weight = group * p.m * p.kc * p.weight_taps + channel % p.m * p.weight_m;
    let y0 = i32(qy * p.y.step) + p.y.off;
    let x0 = i32(qx * p.x.step) + p.x.off;
    var sum = bias_of(channel);
    for (var r = 0u; r < p.y.taps; r++) {
        let y = u32(y0 + i32(r) * p.y.tap_step);
        for (var s = 0u; s < p.x.taps; s++) {
            let x = u32(x0 + i32(s) * p.x.tap_step);
            // Negative coordinates wrap to large ones.
            if (y < p.y.src && x < p.x.src) {
                let tap = (p.y.first + r * p.y.every) * p.kernel_w + p.x.first + s * p.x.every;
                for (var k = 0u; k < p.kc; k++) {
                    let v = source(bases, k, vec4(y * p.x.src + x), terms_of(group * p.kc + k)).x;
                    sum = fma(weights[weight + k * p.weight_c + tap], v, sum);
                }
            }
        }
    }
    let row = (image * channels + channel) * p.y.dst + qy * p.y.out + p.y.phase;
    store(row * p.x.dst + qx * p.x.out + p.x.phase, sum);
}
