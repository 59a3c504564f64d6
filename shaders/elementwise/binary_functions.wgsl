// Functions of two elements, four at a time, and what they call. `binary_NAME` is a function of its operands. With BY_CODE,
// `binary` selects one by the override F. Both come from the table in src/graph/op/binary.rs.
#import common/nan
#import elementwise/binary_table

fn flag(condition: vec4<bool>) -> vec4<f32> { return select(vec4(0.0), vec4(1.0), condition); }

// The derivative of the cross-entropy of logit a and target b. e^-|a| never overflows.
fn bce_slope(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let e = exp(-abs(a));
    return select(e, vec4(1.0), a >= vec4(0.0)) / (1.0 + e) - b;
}

// ln v; NaN for v < 0, where WGSL's log may be anything.
fn log_or_nan(v: vec4<f32>) -> vec4<f32> {
    return select(log4(v), nan_of4(v), v < vec4(0.0));
}

// a^b with C's special cases. WGSL's pow is defined for a > 0, or a = 0 with b > 0.
fn power(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let size = abs(a);
    let one = (size == vec4(1.0)) | (b == vec4(0.0));
    var r = exp2(b * log2(size));
    r = select(r, select(vec4(0.0), 1.0 / size, b < vec4(0.0)), size == vec4(0.0));
    r = select(r, vec4(1.0), one);
    // An integer is odd if its half is none. From 2^24 on all are even.
    let whole = floor(b) == b;
    let odd = whole & (floor(0.5 * b) * 2.0 != b) & (abs(b) < vec4(16777216.0));
    let minus = (bitcast<vec4<u32>>(a) >> vec4(31u)) == vec4(1u);
    r = select(r, -r, minus & odd);
    r = select(r, nan_of4(a), (a < vec4(0.0)) & !whole & finite4(a));
    let kept = (b == vec4(0.0)) | (a == vec4(1.0));
    return select(or_nan4(a, or_nan4(b, r)), r, kept);
}
