// IEEE binary16 by integers: what drivers do when they round or overflow is their own affair. Lanes hold 16 bits each.

// Nearest, ties to even; beyond the largest number, infinities too, that number. NaN stays NaN.
fn to_half(bits: vec4<u32>) -> vec4<u32> {
    let magnitude = bits & vec4(0x7fffffffu);
    let sign = (bits >> vec4(16u)) & vec4(0x8000u);
    let odd = (magnitude >> vec4(13u)) & vec4(1u);
    let normal = (magnitude + vec4(0xfffu) + odd - vec4(0x38000000u)) >> vec4(13u);
    // Below 2^-14 digits are lost one by one; below 2^-25 all of them.
    let digits = (magnitude & vec4(0x7fffffu)) | vec4(0x800000u);
    let shift = vec4(126u) - clamp(magnitude >> vec4(23u), vec4(101u), vec4(112u));
    let half = (vec4(1u) << (shift - vec4(1u))) - vec4(1u);
    let small = (digits + half + ((digits >> shift) & vec4(1u))) >> shift;
    let number = select(normal, small, magnitude < vec4(0x38800000u));
    let limited = select(number, vec4(0x7bffu), magnitude >= vec4(0x477fe000u));
    let nan = vec4(0x7e00u) | ((magnitude >> vec4(13u)) & vec4(0x3ffu));
    return sign | select(limited, nan, magnitude > vec4(0x7f800000u));
}

fn from_half(half: vec4<u32>) -> vec4<u32> {
    let magnitude = half & vec4(0x7fffu);
    let sign = (half & vec4(0x8000u)) << vec4(16u);
    let normal = (magnitude << vec4(13u)) + vec4(0x38000000u);
    // Exact: at most ten digits times a power of two, and far from where f32 runs out of range.
    let small = bitcast<vec4<u32>>(vec4<f32>(magnitude) * 0x1p-24f);
    let number = select(normal, small, magnitude < vec4(0x400u));
    let beyond = (magnitude << vec4(13u)) + vec4(0x70000000u);
    let quiet = select(vec4(0u), vec4(0x400000u), magnitude > vec4(0x7c00u));
    return sign | select(number, beyond | quiet, magnitude >= vec4(0x7c00u));
}
