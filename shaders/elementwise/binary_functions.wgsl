// Functions of two elements, four at a time.
#import common/nan
fn flag(condition: vec4<bool>) -> vec4<f32> { return select(vec4(0.0), vec4(1.0), condition); }
fn binary_add(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return a + b; }
fn binary_sub(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return a - b; }
fn binary_mul(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return a * b; }
fn binary_div(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return a / b;
}
fn binary_max(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return or_nan4(a, or_nan4(b, max(a, b))); }
fn binary_min(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return or_nan4(a, or_nan4(b, min(a, b))); }
fn binary_equal(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return flag(a == b); }
fn binary_greater(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return flag(a > b); }
fn binary_bce_logits(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return max(a, vec4(0.0)) - a * b + log(1.0 + exp(-abs(a)));
}
fn binary_bce_logits_grad(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let e = exp(-abs(a));
    return select(e, vec4(1.0), a >= vec4(0.0)) / (1.0 + e) - b;
}
#if BY_CODE

// A function of two elements by number. F is the code of graph::Binary.
override F: u32 = 0u;

fn binary(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    switch F {
        case 0u: { return binary_add(a, b); }
        case 1u: { return binary_sub(a, b); }
        case 2u: { return binary_mul(a, b); }
        case 3u: { return binary_div(a, b); }
        case 4u: { return binary_max(a, b); }
        case 5u: { return binary_min(a, b); }
        case 6u: { return binary_equal(a, b); }
        case 7u: { return binary_greater(a, b); }
        case 8u: { return binary_bce_logits(a, b); }
        default: { return binary_bce_logits_grad(a, b); }
    }
}
#endif
