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
