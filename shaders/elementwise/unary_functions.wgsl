// Functions of one element and their derivatives, four at a time: `unary_f`, and `slope_f` from the output of f for exp,
// sqrt, recip, relu, leaky_relu, sigmoid and tanh and from the input for the others.
#import common/nan

// tanh is (e^2v - 1) / (e^2v + 1); beyond 15 the result is 1 in f32, and some drivers' tanh overflows.
fn tanh_safe(v: vec4<f32>) -> vec4<f32> {
    return or_nan4(v, tanh(clamp(v, vec4(-15.0), vec4(15.0))));
}

// e^-|v| never overflows.
fn sigmoid(v: vec4<f32>) -> vec4<f32> {
    let e = exp(-abs(v));
    return select(e, vec4(1.0), v >= vec4(0.0)) / (1.0 + e);
}

// erf after N. Juffa's erff: two polynomials, each within 1 ULP.
fn erf(v: vec4<f32>) -> vec4<f32> {
    let t = abs(v);
    let s = v * v;
    var far = fma(vec4(-1.72853470e-5), t, vec4(3.83197126e-4));
    far = fma(far, s, fma(vec4(-3.88396438e-3), t, vec4(2.42546219e-2)));
    far = fma(far, t, vec4(-1.06777877e-1));
    far = fma(far, t, vec4(-6.34846687e-1));
    far = fma(far, t, vec4(-1.28717512e-1));
    far = fma(far, t, -t);
    // Beyond 10 the polynomial leaves its range; e^-10 is already nothing beside 1.
    far = (1.0 - exp(select(far, vec4(-100.0), t > vec4(10.0)))) * sign(v);
    var near = fma(vec4(-5.96761703e-4), s, vec4(4.99119423e-3));
    near = fma(near, s, vec4(-2.67681349e-2));
    near = fma(near, s, vec4(1.12819925e-1));
    near = fma(near, s, vec4(-3.76125336e-1));
    near = fma(near, s, vec4(1.28379166e-1));
    near = fma(near, v, v);
    return select(near, far, t > vec4(0.927734375));
}

fn normal_cdf(v: vec4<f32>) -> vec4<f32> {
    return 0.5 * (1.0 + erf(v * 0.70710678118));
}

const GELU_A = 0.79788456080; // sqrt(2 / pi)
const GELU_B = 0.044715;

fn unary_scale(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return a * v;
}
fn unary_offset(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return v + a;
}
fn unary_exp(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return exp4(v);
}
fn unary_log(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return log4(v);
}
fn unary_sqrt(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return sqrt(v);
}
fn unary_abs(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return abs(v);
}
fn unary_square(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return v * v;
}
fn unary_recip(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return 1.0 / v;
}
fn unary_clamp(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return or_nan4(v, min(max(v, vec4(a)), vec4(b)));
}
fn unary_relu(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return or_nan4(v, max(v, vec4(0.0)));
}
fn unary_leaky_relu(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return select(a * v, v, v > vec4(0.0));
}
fn unary_sigmoid(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return sigmoid(v);
}
fn unary_tanh(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return tanh_safe(v);
}
fn unary_gelu(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return v * normal_cdf(v);
}
fn unary_gelu_tanh(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return 0.5 * v * (1.0 + tanh_safe(GELU_A * (v + GELU_B * v * v * v)));
}
fn unary_silu(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return v * sigmoid(v);
}

fn slope_exp(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return s;
}
fn slope_log(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return 1.0 / s;
}
fn slope_sqrt(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return 0.5 / s;
}
fn slope_abs(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return sign(s);
}
fn slope_square(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return 2.0 * s;
}
fn slope_recip(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return -s * s;
}
fn slope_clamp(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return select(vec4(0.0), vec4(1.0), (s >= vec4(a)) & (s <= vec4(b)));
}
fn slope_relu(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return select(vec4(0.0), vec4(1.0), (s > vec4(0.0)) | nan4(s));
}
fn slope_leaky_relu(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return select(vec4(a), vec4(1.0), s > vec4(0.0));
}
fn slope_sigmoid(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return s * (1.0 - s);
}
fn slope_tanh(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return 1.0 - s * s;
}
fn slope_gelu(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    return normal_cdf(s) + s * 0.39894228040 * exp(-0.5 * s * s);
}
fn slope_gelu_tanh(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    let t = tanh_safe(GELU_A * (s + GELU_B * s * s * s));
    let bend = 0.5 * s * (1.0 - t * t) * GELU_A * (1.0 + 3.0 * GELU_B * s * s);
    // 1 - t² is 0 long before s² is infinite.
    return 0.5 * (1.0 + t) + select(bend, vec4(0.0), abs(t) == vec4(1.0));
}
fn slope_silu(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    let t = sigmoid(s);
    return t * (1.0 + s * (1.0 - t));
}
#if BY_CODE

// A function of one element or its derivative by number. F is the code of graph::Unary.
override F: u32 = 0u;

fn unary(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    switch F {
        case 0u: { return unary_scale(v, a, b); }
        case 1u: { return unary_offset(v, a, b); }
        case 2u: { return unary_exp(v, a, b); }
        case 3u: { return unary_log(v, a, b); }
        case 4u: { return unary_sqrt(v, a, b); }
        case 5u: { return unary_abs(v, a, b); }
        case 6u: { return unary_square(v, a, b); }
        case 7u: { return unary_recip(v, a, b); }
        case 8u: { return unary_clamp(v, a, b); }
        case 9u: { return unary_relu(v, a, b); }
        case 10u: { return unary_leaky_relu(v, a, b); }
        case 11u: { return unary_sigmoid(v, a, b); }
        case 12u: { return unary_tanh(v, a, b); }
        case 13u: { return unary_gelu(v, a, b); }
        case 14u: { return unary_gelu_tanh(v, a, b); }
        default: { return unary_silu(v, a, b); }
    }
}

fn unary_slope(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    switch F {
        case 2u: { return slope_exp(s, a, b); }
        case 3u: { return slope_log(s, a, b); }
        case 4u: { return slope_sqrt(s, a, b); }
        case 5u: { return slope_abs(s, a, b); }
        case 6u: { return slope_square(s, a, b); }
        case 7u: { return slope_recip(s, a, b); }
        case 8u: { return slope_clamp(s, a, b); }
        case 9u: { return slope_relu(s, a, b); }
        case 10u: { return slope_leaky_relu(s, a, b); }
        case 11u: { return slope_sigmoid(s, a, b); }
        case 12u: { return slope_tanh(s, a, b); }
        case 13u: { return slope_gelu(s, a, b); }
        case 14u: { return slope_gelu_tanh(s, a, b); }
        default: { return slope_silu(s, a, b); }
    }
}
#endif
