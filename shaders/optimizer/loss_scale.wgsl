// Dynamic loss scale; with SEED the start of the backward pass.
#if SEED
// loss_scale_seed: y = the loss scale; a state that was never written holds 0 and stands for the first one
// state [4] (scale, clean steps, skipped steps, unused) -> y []
// grid: one thread      overrides: none
struct Params {
    start: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> state: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main() {
    y[0] = select(state[0], p.start, state[0] == 0.0);
}
#else
// loss_scale: whether this step counts, and the next scale: halved after an overflow, doubled after `interval` clean steps
// state [4] (scale, clean steps, skipped steps, unused), bad [], scalars [8] -> state, y [8], inverse []
//   y: the step's scalars with 1/scale, with whether to skip, and with corrections that count only steps that were made
// grid: one thread      overrides: none
struct Params {
    start: f32,
    interval: f32,
    kind: u32, // what the corrections are: 0 none, 1 Adam's (a = ln b1, b = ln b2), 2 Adafactor's (a = the exponent)
    a: f32,
    b: f32,
    early: u32, // the scale is taken out before updates see gradients
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> state: array<f32>;
@group(0) @binding(2) var<storage, read_write> bad: array<f32>;
@group(0) @binding(3) var<storage, read_write> scalars: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;
@group(0) @binding(5) var<storage, read_write> inverse: array<f32>;

// 1 - e^x for x below 0, with all its digits near 0.
fn one_less_exp(x: f32) -> f32 {
    if (x < -0.5) {
        return 1.0 - exp(x);
    }
    var sum = 1.0;
    for (var i = 9u; i > 1u; i--) {
        sum = 1.0 + x / f32(i) * sum;
    }
    return -x * sum;
}

@compute @workgroup_size(1)
fn main() {
    let scale = select(state[0], p.start, state[0] == 0.0);
    let skip = bad[0] > 0.0;
    let skipped = state[2];
    for (var i = 0u; i < 6u; i++) {
        y[i] = scalars[i];
    }
    // The scale is a power of two: its inverse has the exponent's complement.
    let inverted = (254u - (bitcast<u32>(scale) >> 23u)) << 23u;
    y[6] = select(inverted, 0x3f800000u, p.early != 0u);
    y[7] = u32(skip);
    inverse[0] = bitcast<f32>(inverted);
    if (skipped > 0.0 && p.kind > 0u) {
        let t = max(f32(scalars[3]) + 1.0 - skipped, 1.0);
        if (p.kind == 1u) {
            y[1] = bitcast<u32>(one_less_exp(t * p.a));
            y[2] = bitcast<u32>(sqrt(one_less_exp(t * p.b)));
        } else {
            y[1] = bitcast<u32>(pow(t, p.a));
            y[2] = bitcast<u32>(min(bitcast<f32>(scalars[0]), inverseSqrt(t)));
        }
    }
    let clean = state[1] + 1.0;
    let grows = !skip && clean >= p.interval;
    let factor = select(select(1.0, 2.0, grows), 0.5, skip);
    state[0] = clamp(scale * factor, 0x1p-60f, 0x1p+60f);
    state[1] = select(clean, 0.0, skip || grows);
    state[2] = skipped + f32(skip);
    state[3] = 0.0;
}
#endif
