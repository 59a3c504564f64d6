// Functions of one element and their derivatives, four at a time. F is the code of graph::Unary.
override F: u32 = 0u;

// tanh is (e^2v - 1) / (e^2v + 1); beyond 15 the result is 1 in f32, and some drivers' tanh overflows.
fn tanh_safe(v: vec4<f32>) -> vec4<f32> {
    return tanh(clamp(v, vec4(-15.0), vec4(15.0)));
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

fn unary(v: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    switch F {
        case 0u: { return a * v; }
        case 1u: { return v + a; }
        case 2u: { return exp(v); }
        case 3u: { return log(v); }
        case 4u: { return sqrt(v); }
        case 5u: { return abs(v); }
        case 6u: { return v * v; }
        case 7u: { return 1.0 / v; }
        case 8u: { return min(max(v, vec4(a)), vec4(b)); }
        case 9u: { return max(v, vec4(0.0)); }
        case 10u: { return select(a * v, v, v > vec4(0.0)); }
        case 11u: { return sigmoid(v); }
        case 12u: { return tanh_safe(v); }
        case 13u: { return v * normal_cdf(v); }
        case 14u: { return 0.5 * v * (1.0 + tanh_safe(GELU_A * (v + GELU_B * v * v * v))); }
        default: { return v * sigmoid(v); }
    }
}

// The derivative, from the output for codes 2, 4, 7, 9 to 12 and from the input for the others.
fn unary_slope(s: vec4<f32>, a: f32, b: f32) -> vec4<f32> {
    let one = vec4(1.0);
    let zero = vec4(0.0);
    switch F {
        case 2u: { return s; }
        case 3u: { return 1.0 / s; }
        case 4u: { return 0.5 / s; }
        case 5u: { return sign(s); }
        case 6u: { return 2.0 * s; }
        case 7u: { return -s * s; }
        case 8u: { return select(zero, one, (s >= vec4(a)) & (s <= vec4(b))); }
        case 9u: { return select(zero, one, s > zero); }
        case 10u: { return select(vec4(a), one, s > zero); }
        case 11u: { return s * (1.0 - s); }
        case 12u: { return 1.0 - s * s; }
        case 13u: { return normal_cdf(s) + s * 0.39894228040 * exp(-0.5 * s * s); }
        case 14u: {
            let t = tanh_safe(GELU_A * (s + GELU_B * s * s * s));
            return 0.5 * (1.0 + t) + 0.5 * s * (1.0 - t * t) * GELU_A * (1.0 + 3.0 * GELU_B * s * s);
        }
        default: {
            let t = sigmoid(s);
            return t * (1.0 + s * (1.0 - t));
        }
    }
}
