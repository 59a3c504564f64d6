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
