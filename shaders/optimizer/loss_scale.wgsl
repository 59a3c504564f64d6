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
// state [4] (scale, clean steps, skipped steps, unused), bad [], scalars [9] -> state, y [9], inverse []
//   y: the step's scalars with 1/scale, with whether to skip, and with corrections that count only steps that were made
// grid: one thread      overrides: none
struct Params {
    start: f32,
    interval: f32,
    // What the corrections are: 0 none, 1 Adam's (a = ln b1, b = ln b2), 2 Adafactor's (a = the exponent), 3 NAdam's (a and b as
    // Adam's, c = the decay of its momentum times ln 0.96), 4 RAdam's (a and b, c = rho of no end, d = c + 2 / b), 5 Adagrad's
    // (a = the growth of its divisor)
    kind: u32,
    a: f32,
    b: f32,
    c: f32,
    d: f32,
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

// As in graph::Counting, whose names these are.
fn momentum(t: f32) -> f32 { return exp(p.a) * (1.0 - 0.5 * exp(t * p.c)); }

fn momentum_product(t: f32) -> f32 {
    var logarithm = t * p.a;
    var half = 1.0;
    for (var i = 1u; i <= 24u; i++) {
        let k = f32(i);
        half *= 0.5;
        var sum = t;
        if (p.c < 0.0) {
            sum = one_less_exp(t * k * p.c) / one_less_exp(k * p.c);
        }
        logarithm -= half / k * exp(k * p.c) * sum;
    }
    return exp(logarithm);
}

// The length of the average of t squares: c - 2 t / (e^x - 1) with x = -t b. For small x the difference of both is a series.
fn length_of(t: f32) -> f32 {
    let x = -t * p.b;
    if (x > 1.0) {
        return p.c - 2.0 * t * exp(-x) / one_less_exp(-x);
    }
    return p.d + t * (1.0 - x / 6.0 * (1.0 - x * x / 60.0 * (1.0 - x * x / 42.0 * (1.0 - x * x / 40.0))));
}

fn part(length: f32) -> f32 { return (length - 4.0) * (length - 2.0) / length; }

// bias1, sqrt_bias2 and gradient_share of graph::StepScalars for step t, the first being 1.
fn corrections(t: f32, rate: f32) -> vec3<f32> {
    if (p.kind == 2u) {
        return vec3(pow(t, p.a), min(rate, inverseSqrt(t)), 0.0);
    }
    if (p.kind == 5u) {
        return vec3(1.0 + (t - 1.0) * p.a, 1.0, 0.0);
    }
    let bias1 = one_less_exp(t * p.a);
    let bias2 = one_less_exp(t * p.b);
    if (p.kind == 3u) {
        let product = momentum_product(t);
        let next = max(momentum(t + 1.0), 1e-30);
        return vec3((1.0 - product * next) / next, sqrt(bias2), (1.0 - momentum(t)) / (1.0 - product));
    }
    if (p.kind == 4u) {
        let length = length_of(t);
        if (length <= 5.0) {
            return vec3(bias1, 0.0, 0.0);
        }
        return vec3(bias1 / sqrt(part(length) / part(p.c) * bias2), 1.0, 0.0);
    }
    return vec3(bias1, sqrt(bias2), 0.0);
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
    y[8] = scalars[8];
    inverse[0] = bitcast<f32>(inverted);
    if (skipped > 0.0 && p.kind > 0u) {
        let t = max(f32(scalars[3]) + 1.0 - skipped, 1.0);
        let corrected = corrections(t, bitcast<f32>(scalars[0]));
        y[1] = bitcast<u32>(corrected.x);
        y[2] = bitcast<u32>(corrected.y);
        y[8] = bitcast<u32>(corrected.z);
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
