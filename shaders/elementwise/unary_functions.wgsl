// Functions of one element and their derivatives, four at a time, and what they call. `unary_NAME` is a function of its input and
// of two constants; `slope_NAME` is its derivative, of its output or of its input. With BY_CODE, `unary` and `unary_slope`
// select one by the override F. All three come from the table in src/graph/op/unary.rs.
#import common/nan
#import elementwise/unary_table

// tanh is (e^2v - 1) / (e^2v + 1); beyond 15 the result is 1 in f32, and some drivers' tanh overflows. Near 0 it
// would lose its digits: a series has them.
fn tanh_safe(v: vec4<f32>) -> vec4<f32> {
    let s = v * v;
    let near = v - v * s * (1.0 / 3.0 - s * 2.0 / 15.0);
    return or_nan4(v, select(tanh(clamp(v, vec4(-15.0), vec4(15.0))), near, s < vec4(4e-3)));
}

// e^v - 1, with its digits near 0.
fn expm1(v: vec4<f32>) -> vec4<f32> {
    let near = v + v * v * (0.5 + v * (1.0 / 6.0 + v / 24.0));
    return select(exp(v) - 1.0, near, abs(v) < vec4(0.02));
}

// e^-|v| never overflows.
fn sigmoid(v: vec4<f32>) -> vec4<f32> {
    let e = exp(-abs(v));
    return select(e, vec4(1.0), v >= vec4(0.0)) / (1.0 + e);
}

// ln(1 + e^v), without overflow.
fn softplus(v: vec4<f32>) -> vec4<f32> { return or_nan4(v, max(v, vec4(0.0)) + log1p4(exp(-abs(v)))); }

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

fn normal_cdf(v: vec4<f32>) -> vec4<f32> { return 0.5 * (1.0 + erf(v * 0.70710678118)); }

const GELU_A = 0.79788456080; // sqrt(2 / pi)
const GELU_B = 0.044715;

fn gelu_tanh_slope(s: vec4<f32>) -> vec4<f32> {
    let t = tanh_safe(GELU_A * (s + GELU_B * s * s * s));
    let bend = 0.5 * s * (1.0 - t * t) * GELU_A * (1.0 + 3.0 * GELU_B * s * s);
    // 1 - t² is 0 long before s² is infinite.
    return 0.5 * (1.0 + t) + select(bend, vec4(0.0), abs(t) == vec4(1.0));
}

fn silu_slope(s: vec4<f32>) -> vec4<f32> {
    let t = sigmoid(s);
    return t * (1.0 + s * (1.0 - t));
}

fn mish_slope(s: vec4<f32>) -> vec4<f32> {
    let t = tanh_safe(softplus(s));
    return t + s * (1.0 - t * t) * sigmoid(s);
}

// sin(v + turns π/2). π/2 is subtracted in three parts: the products with the first two are exact while v is below 50,000.
// Polynomials on -π/4 to π/4 after Cephes' sinf and cosf.
fn wave(v: vec4<f32>, turns: i32) -> vec4<f32> {
    let k = round(v * 0.63661977237);
    let r = clamp(((v - k * 1.5703125) - k * 4.837512969970703125e-4) - k * 7.54978995489188216e-8, vec4(-0.8), vec4(0.8));
    let s = r * r;
    let odd = r + r * s * (-1.6666654611e-1 + s * (8.3321608736e-3 - s * 1.9515295891e-4));
    let even = 1.0 - 0.5 * s + s * s * (4.166664568298827e-2 + s * (-1.388731625493765e-3 + s * 2.443315711809948e-5));
    let quarter = (vec4<i32>(k) + vec4(turns)) & vec4(3);
    let y = select(odd, even, (quarter & vec4(1)) == vec4(1));
    // Infinities have no sine.
    return select(nan_of4(v), select(y, -y, quarter >= vec4(2)), finite4(v));
}
