// NaN goes through minima, maxima and clamps, as in PyTorch. Compilers may assume that there is none: bits are compared.
fn nan1(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
fn nan4(v: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(v) & vec4(0x7fffffffu)) > vec4(0x7f800000u);
}

fn finite4(v: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(v) & vec4(0x7fffffffu)) < vec4(0x7f800000u);
}

// NaN, made of the bits of `v`: compilers compute 0 v and 0 / 0 as if there were none.
fn nan_of4(v: vec4<f32>) -> vec4<f32> { return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) | vec4(0x7fc00000u)); }

// `r`, or `v` where that is NaN.
fn or_nan1(v: f32, r: f32) -> f32 { return select(r, v, nan1(v)); }
fn or_nan4(v: vec4<f32>, r: vec4<f32>) -> vec4<f32> { return select(r, v, nan4(v)); }

// e^v and ln v. Those of SwiftShader make numbers of NaN.
fn exp1(v: f32) -> f32 { return or_nan1(v, exp(v)); }
fn exp4(v: vec4<f32>) -> vec4<f32> { return or_nan4(v, exp(v)); }
fn log1(v: f32) -> f32 { return or_nan1(v, log(v)); }
fn log4(v: vec4<f32>) -> vec4<f32> { return or_nan4(v, log(v)); }

// ln(1 + v) for v ≥ 0, with its digits near 0.
fn log1p4(v: vec4<f32>) -> vec4<f32> {
    let near = v - v * v * (0.5 - v * (1.0 / 3.0 - v * 0.25));
    return select(log(1.0 + v), near, v < vec4(0.015625));
}

// tanh(v / cap), by one exponential: its absolute error, times the cap, is that of a number near the cap.
fn tanh_of_ratio(v: vec4<f32>, cap: f32) -> vec4<f32> {
    let e = exp4(abs(v) * (-2.0 / cap));
    let t = (1.0 - e) / (1.0 + e);
    return select(-t, t, v > vec4(0.0));
}
