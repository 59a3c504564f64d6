// A thread for each element of a convolution, or with WEIGHT of its weight gradient.
#import common/grid
#import conv/source
#if WEIGHT
#import conv/weight
// conv_weight_direct: a part of the weight's gradient, for few channels in a group and for small subgroups
// src [batch, groups * kc, h, w], dy [batch, groups * m, h', w'] -> parts [parts, groups * m, kc * taps]
// grid: one thread per element and part, folded: tiles_m threads in x      overrides: none
// requires: fewer than 60,000 pixels in a part
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.tiles_m);
    if (i >= p.parts * p.total) {
        return;
    }
    let part = i / p.total;
    let columns = p.kc * p.kernel.x * p.kernel.y;
    let channel = i % p.total / columns;
    let group = channel / p.m;
    let column = i % columns;
    let c = column / (p.kernel.x * p.kernel.y);
    let r = column / p.kernel.y % p.kernel.x * p.dilation.x;
    let s = column % p.kernel.y * p.dilation.y;
    let terms = terms_of(group * p.kc + c);
    let dy_plane = p.result.x * p.result.y;
    let x_plane = p.image.x * p.image.y;
    let first = part * p.part_len;
    let end = min(first + p.part_len, p.batch * dy_plane);
    var image = first / dy_plane;
    var pixel = first - image * dy_plane;
    var oy = pixel / p.result.y;
    var ox = pixel - oy * p.result.y;
    var sum = 0.0;
    for (var k = first; k < end; k++) {
        // Negative coordinates wrap to large ones.
        let y = oy * p.stride.x + r - p.padding.x;
        let z = ox * p.stride.y + s - p.padding.y;
        if (y < p.image.x && z < p.image.y) {
            let x_at = ((image * p.groups + group) * p.kc + c) * x_plane + y * p.image.y + z;
            let v = read(image_at(vec4(x_at)), terms).x;
            sum = fma(dy[(image * p.groups * p.m + channel) * dy_plane + pixel], v, sum);
        }
        pixel += 1u;
        ox += 1u;
        if (ox == p.result.y) {
            ox = 0u;
            oy += 1u;
        }
        if (pixel == dy_plane) {
            pixel = 0u;
            oy = 0u;
            image += 1u;
        }
    }
    parts[i] = sum;
}
#else
#import conv/conv
#import conv/bias
#import common/store
// conv_direct: convolution, or the gradient of its image, for few channels in a group and for small subgroups
// src [batch, groups * kc, h, w], weights as strides say, bias [groups * m]? -> c [batch, groups * m, h', w']
// grid: one thread per element of the result's phase, folded: tiles_m threads in x      overrides: none
// requires: for lavapipe at most 65,000 iterations of the loops over taps and channels
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
#endif
