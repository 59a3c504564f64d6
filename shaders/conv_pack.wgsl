// conv_pack: weights in the order in which conv_cpu reads them, padded with zeros; biases behind them
// w [groups, m, kc, taps] as strides say, bias [groups * m]? -> packed [groups, tiles_m, taps, kc4, 16] of vec4 over
//   source channels, then [groups, tiles_m, 16] of bias in x        kc4 = ceil(kc / 4)
// grid: one thread per vec4, folded      overrides: none
struct Params {
    threads_x: u32,
    weights: u32,
    total: u32,
    tiles_m: u32,
    m: u32,
    kc: u32,
    taps: u32,
    weight_m: u32,
    weight_c: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> packed: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.total) {
        return;
    }
    if (i >= p.weights) {
        let row = i - p.weights;
        let group = row / (p.tiles_m * 16u);
        let m = row % (p.tiles_m * 16u);
        var value = vec4<f32>();
        if (m < p.m) {
            value.x = bias_of(group * p.m + m);
        }
        packed[i] = value;
        return;
    }
    let kc4 = (p.kc + 3u) / 4u;
    let c = i / 16u % kc4 * 4u;
    let tap = i / (16u * kc4) % p.taps;
    let tile = i / (16u * kc4 * p.taps);
    let group = tile / p.tiles_m;
    let m = tile % p.tiles_m * 16u + i % 16u;
    var value = vec4<f32>();
    if (m < p.m) {
        let at = group * p.m * p.kc * p.taps + m * p.weight_m + tap;
        let last = p.kc - 1u;
        value.x = w[at + c * p.weight_c];
        value.y = select(0.0, w[at + min(c + 1u, last) * p.weight_c], c + 1u <= last);
        value.z = select(0.0, w[at + min(c + 2u, last) * p.weight_c], c + 2u <= last);
        value.w = select(0.0, w[at + min(c + 3u, last) * p.weight_c], c + 3u <= last);
    }
    packed[i] = value;
}
