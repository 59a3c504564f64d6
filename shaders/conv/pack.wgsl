// conv_pack: weights in the order in which conv_cpu reads them, padded with zeros; biases after them
// w [groups, m, kc, taps] as strides say, bias [groups * m]? -> packed [groups, tiles_m, taps, iterations, 16, at_once], iterations of
//   at_once source channels each, then [groups, tiles_m, 16, at_once] with the bias first
// grid: one thread per element, folded      overrides: none
#import common/grid
#import conv/bias
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
    at_once: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> packed: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.total) {
        return;
    }
    let of_step = i % p.at_once;
    let row = i / p.at_once % 16u;
    let iterations = (p.kc + p.at_once - 1u) / p.at_once;
    let is_bias = i >= p.weights;
    let step = select(i, i - p.weights, is_bias) / p.at_once / 16u;
    let tile = select(step / iterations / p.taps, step, is_bias);
    let m = tile % p.tiles_m * 16u + row;
    let channel = step % iterations * p.at_once + of_step;
    let tap = step / iterations % p.taps;
    let group = tile / p.tiles_m;
    var value = 0.0;
    if (is_bias) {
        if (m < p.m && of_step == 0u) {
            value = bias_of(group * p.m + m);
        }
    } else if (m < p.m && channel < p.kc) {
        value = w[group * p.m * p.kc * p.taps + m * p.weight_m + channel * p.weight_c + tap];
    }
    packed[i] = value;
}
