// bfloat16, the upper half of an f32, by integers. Lanes hold 16 bits each.

// The number behind `magnitude + below`, lower bits cut off; infinite beyond the largest number. NaN stays NaN.
fn half_of(bits: vec4<u32>, below: vec4<u32>) -> vec4<u32> {
    let magnitude = bits & vec4(0x7fffffffu);
    let sign = (bits >> vec4(16u)) & vec4(0x8000u);
    let number = (magnitude + below) >> vec4(16u);
    let nan = vec4(0x40u) | (magnitude >> vec4(16u));
    return sign | select(number, nan, magnitude > vec4(0x7f800000u));
}

// Nearest, ties to even.
fn nearest_half(bits: vec4<u32>) -> vec4<u32> {
    return half_of(bits, vec4(0x7fffu) + ((bits >> vec4(16u)) & vec4(1u)));
}

// Up with the chance that the lost bits are of the way, by 32 random bits.
fn drawn_half(bits: vec4<u32>, drawn: vec4<u32>) -> vec4<u32> {
    return half_of(bits, drawn >> vec4(16u));
}

// Nearest, ties to even; beyond the largest number, infinities too, that number.
fn to_half(bits: vec4<u32>) -> vec4<u32> {
    let half = nearest_half(bits);
    return half - vec4<u32>((half & vec4(0x7fffu)) == vec4(0x7f80u));
}

fn from_half(half: vec4<u32>) -> vec4<u32> {
    let nan = (half & vec4(0x7fffu)) > vec4(0x7f80u);
    return (half | select(vec4(0u), vec4(0x40u), nan)) << vec4(16u);
}
