// Functions of two elements. F is the code of graph::Binary.
override F: u32 = 0u;

fn flag(condition: bool) -> f32 {
    return select(0.0, 1.0, condition);
}

fn binary(a: f32, b: f32) -> f32 {
    switch F {
        case 0u: { return a + b; }
        case 1u: { return a - b; }
        case 2u: { return a * b; }
        case 3u: { return a / b; }
        case 4u: { return max(a, b); }
        case 5u: { return min(a, b); }
        case 6u: { return flag(a == b); }
        case 7u: { return flag(a > b); }
        case 8u: { return max(a, 0.0) - a * b + log(1.0 + exp(-abs(a))); }
        default: {
            let e = exp(-abs(a));
            return select(e, 1.0, a >= 0.0) / (1.0 + e) - b;
        }
    }
}
