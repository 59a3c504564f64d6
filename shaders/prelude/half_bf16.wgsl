// bfloat16, the upper half of an f32, by integers. Lanes hold 16 bits each.

// Nearest, ties to even; beyond the largest number, infinities too, that number. NaN stays NaN.
fn to_half(bits: vec4<u32>) -> vec4<u32> {
    let magnitude = bits & vec4(0x7fffffffu);
    let sign = (bits >> vec4(16u)) & vec4(0x8000u);
    let odd = (magnitude >> vec4(16u)) & vec4(1u);
    let number = min((magnitude + vec4(0x7fffu) + odd) >> vec4(16u), vec4(0x7f7fu));
    let nan = vec4(0x40u) | (magnitude >> vec4(16u));
    return sign | select(number, nan, magnitude > vec4(0x7f800000u));
}

fn from_half(half: vec4<u32>) -> vec4<u32> {
    let nan = (half & vec4(0x7fffu)) > vec4(0x7f80u);
    return (half | select(vec4(0u), vec4(0x40u), nan)) << vec4(16u);
}
