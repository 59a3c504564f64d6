// Elements of 16 bits, two to a word.
#if F16 || IMAGE_F16 || HELD_F16
// IEEE binary16 by integers: what drivers do when they round or overflow is their own affair. Lanes hold 16 bits each.

// `normal` and `small` with sign; which of them holds is decided here. Infinite beyond the largest number, NaN stays NaN.
fn half_of(bits: vec4<u32>, normal: vec4<u32>, small: vec4<u32>) -> vec4<u32> {
    let magnitude = bits & vec4(0x7fffffffu);
    let sign = (bits >> vec4(16u)) & vec4(0x8000u);
    let number = select(min(normal, vec4(0x7c00u)), small, magnitude < vec4(0x38800000u));
    let nan = vec4(0x7e00u) | ((magnitude >> vec4(13u)) & vec4(0x3ffu));
    return sign | select(number, nan, magnitude > vec4(0x7f800000u));
}

fn digits_of(magnitude: vec4<u32>) -> vec4<u32> { return (magnitude & vec4(0x7fffffu)) | vec4(0x800000u); }

// Nearest, ties to even.
fn nearest_half(bits: vec4<u32>) -> vec4<u32> {
    let magnitude = bits & vec4(0x7fffffffu);
    let odd = (magnitude >> vec4(13u)) & vec4(1u);
    let normal = (magnitude + vec4(0xfffu) + odd - vec4(0x38000000u)) >> vec4(13u);
    // Below 2^-14 digits are lost one by one; below 2^-25 all of them.
    let digits = digits_of(magnitude);
    let shift = vec4(126u) - clamp(magnitude >> vec4(23u), vec4(101u), vec4(112u));
    let half = (vec4(1u) << (shift - vec4(1u))) - vec4(1u);
    let small = (digits + half + ((digits >> shift) & vec4(1u))) >> shift;
    return half_of(bits, normal, small);
}

// Up with the chance that the lost bits are of the way, by 32 random bits.
fn drawn_half(bits: vec4<u32>, drawn: vec4<u32>) -> vec4<u32> {
    let magnitude = bits & vec4(0x7fffffffu);
    let normal = (magnitude + (drawn >> vec4(19u)) - vec4(0x38000000u)) >> vec4(13u);
    // Below 2^-14 numbers are 2^-24 apart. Where more than 31 bits are lost, the last of them have no chance.
    let exponent = clamp(magnitude >> vec4(23u), vec4(71u), vec4(112u));
    let shift = min(vec4(126u) - exponent, vec4(31u));
    let digits = digits_of(magnitude) >> (vec4(126u) - exponent - shift);
    let small = (digits + (drawn >> (vec4(32u) - shift))) >> shift;
    return half_of(bits, normal, small);
}

// Nearest, ties to even; beyond the largest number, infinities too, that number.
fn to_half(bits: vec4<u32>) -> vec4<u32> {
    let half = nearest_half(bits);
    return half - vec4<u32>((half & vec4(0x7fffu)) == vec4(0x7c00u));
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
#endif
#if BF16 || IMAGE_BF16 || HELD_BF16
// bfloat16, the upper half of an f32, by integers. Lanes hold 16 bits each.

// The number of `magnitude + below`, lower bits cut off; infinite beyond the largest number. NaN stays NaN.
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
fn drawn_half(bits: vec4<u32>, drawn: vec4<u32>) -> vec4<u32> { return half_of(bits, drawn >> vec4(16u)); }

// Nearest, ties to even; beyond the largest number, infinities too, that number.
fn to_half(bits: vec4<u32>) -> vec4<u32> {
    let half = nearest_half(bits);
    return half - vec4<u32>((half & vec4(0x7fffu)) == vec4(0x7f80u));
}

fn from_half(half: vec4<u32>) -> vec4<u32> {
    let nan = (half & vec4(0x7fffu)) > vec4(0x7f80u);
    return (half | select(vec4(0u), vec4(0x40u), nan)) << vec4(16u);
}
#endif

// Four elements of 16 bits, two to a word, as the bits of four f32.
fn widened(words: vec2<u32>) -> vec4<u32> {
    let low = words & vec2(0xffffu);
    let high = words >> vec2(16u);
    return from_half(vec4(low.x, high.x, low.y, high.y));
}

// Of elements of 16 bits in any places the f32, from the words that they lie in.
fn one_of_two(words: vec4<u32>, places: vec4<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(from_half((words >> ((places & vec4(1u)) * 16u)) & vec4(0xffffu)));
}
