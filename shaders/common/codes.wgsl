// Weights of 4 and 8 bits: the codes of 128 elements, then a word with the scales of both groups of 64, as bf16. An element is its
// code's level times its group's scale. Activations (UINT8, UINT4): the codes, then a word for each group with its least number and
// its step as bf16. An element is the least number plus its code times the step.
#if UINT8 || UINT4
#if UINT8
const CODE_BITS = 8u;
#else
const CODE_BITS = 4u;
#endif
const LEVELS = f32((1u << CODE_BITS) - 1u);
const BLOCK_WORDS = 4u * CODE_BITS + 2u;

// Where the codes of quad i lie, and the least number and the step of its group.
fn codes_at(i: u32) -> u32 { return i / 32u * BLOCK_WORDS + i % 32u * CODE_BITS / 8u; }
fn scales_at(i: u32) -> u32 { return (i / 32u + 1u) * BLOCK_WORDS - 2u + i % 32u / 16u; }

// Of quad i, from its words.
fn four_of_codes(i: u32, codes: u32, scales: u32) -> vec4<f32> {
    let own = vec4(codes >> (i % (8u / CODE_BITS) * 16u)) >> (vec4(0u, 1u, 2u, 3u) * CODE_BITS);
    let levels = vec4<f32>(own & vec4((1u << CODE_BITS) - 1u));
    return bitcast<f32>(scales << 16u) + levels * bitcast<f32>(scales & 0xffff0000u);
}
#if ENCODE

// Whole numbers in the order of the floats: -NaN, -infinity, ..., infinity, NaN.
fn ordered(bits: vec4<u32>) -> vec4<u32> {
    return bits ^ select(vec4(0x80000000u), vec4(0xffffffffu), bits >= vec4(0x80000000u));
}
fn bits_of(ordered: u32) -> u32 {
    return ordered ^ select(0xffffffffu, 0x80000000u, ordered >= 0x80000000u);
}

// bf16 of the least number, rounded down, and above it the step, rounded up, so that all numbers of the group are between the least
// and the greatest level. A step that would be subnormal is 0, that of a group with NaN or infinity NaN.
fn terms_of(low: u32, high: u32) -> u32 {
    if (low <= 0x007fffffu || high >= 0xff800000u) { return 0x7fc00000u; }
    let bits = bits_of(low);
    let down = min((bits & 0x7fffffffu) + select(0u, 0xffffu, bits >= 0x80000000u), 0x7f7fffffu);
    let from_least = ((bits & 0x80000000u) | down) >> 16u;
    let step = bitcast<f32>(bits_of(high)) / LEVELS - bitcast<f32>(from_least << 16u) / LEVELS;
    let up = min(bitcast<u32>(max(step, 0.0)) + 0xffffu, 0x7f7fffffu) >> 16u;
    return from_least | (select(up, 0u, up < 0x80u) << 16u);
}
#endif
#else
#if B_INT8 || INT8
// Whole numbers from -127 to 127, plus 128.
const BLOCK_WORDS = 33u;
const QUADS_IN_WORD = 1u;
const CODE_BITS = 8u;
fn levels_of(codes: u32) -> vec4<f32> {
    return vec4<f32>((vec4(codes) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u)) - vec4(128.0);
}
#else
const BLOCK_WORDS = 17u;
const QUADS_IN_WORD = 2u;
const CODE_BITS = 4u;
#if B_INT4 || INT4
// Whole numbers from -7 to 7, plus 8.
fn levels_of(codes: u32) -> vec4<f32> {
    return vec4<f32>((vec4(codes) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u)) - vec4(8.0);
}
#else
// NF4: a tree of selects by the bits of the code, as compilers put tables in memory.
fn levels_of(codes: u32) -> vec4<f32> {
    let n = vec4(codes) >> vec4(0u, 4u, 8u, 12u);
    let b0 = (n & vec4(1u)) == vec4(1u);
    let b1 = (n & vec4(2u)) == vec4(2u);
    let b2 = (n & vec4(4u)) == vec4(4u);
    let b3 = (n & vec4(8u)) == vec4(8u);
    let t0 = select(vec4(-1.0), vec4(-0.6961928), b0);
    let t1 = select(vec4(-0.52507305), vec4(-0.3949175), b0);
    let t2 = select(vec4(-0.28444138), vec4(-0.18477343), b0);
    let t3 = select(vec4(-0.091050036), vec4(0.0), b0);
    let t4 = select(vec4(0.0795803), vec4(0.1609302), b0);
    let t5 = select(vec4(0.2461123), vec4(0.33791524), b0);
    let t6 = select(vec4(0.44070983), vec4(0.562617), b0);
    let t7 = select(vec4(0.72295684), vec4(1.0), b0);
    let low = select(select(t0, t1, b1), select(t2, t3, b1), b2);
    return select(low, select(select(t4, t5, b1), select(t6, t7, b1), b2), b3);
}
#endif
#endif

// Where the codes and the scales of quad i lie.
fn codes_at(i: u32) -> u32 { return i / 32u * BLOCK_WORDS + i % 32u / QUADS_IN_WORD; }
fn scales_at(i: u32) -> u32 { return i / 32u * BLOCK_WORDS + BLOCK_WORDS - 1u; }

// The scale of quad i, from the word of its block.
fn scale_of(i: u32, scales: u32) -> f32 {
    return bitcast<f32>((scales >> (i / 16u % 2u * 16u)) << 16u);
}

// Of quad i, from its words.
fn four_of_codes(i: u32, codes: u32, scales: u32) -> vec4<f32> {
    return levels_of(codes >> (i % QUADS_IN_WORD * 16u)) * scale_of(i, scales);
}

// Of element i, from the words of its quad.
fn one_of_codes(i: u32, codes: u32, scales: u32) -> f32 {
    return levels_of(codes >> (i % (32u / CODE_BITS) * CODE_BITS)).x * scale_of(i / 4u, scales);
}
#endif
