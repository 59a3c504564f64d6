// Operands of matrix products, in 32 or 16 bits, the second in 8 or 4 as well; with VEC4 read in groups of four.
#import matmul/params
#import common/store
#if A_F16 || B_F16
#if CPU
// What products read of IEEE binary16 on CPU adapters, whose own conversion is exact, and faster than integers. Drivers of
// GPUs may take subnormal numbers for 0.
fn f16_four(words: vec2<u32>) -> vec4<f32> {
    return vec4(unpack2x16float(words.x), unpack2x16float(words.y));
}
// Of the lower half of a word.
fn f16_one(word: u32) -> f32 { return unpack2x16float(word).x; }
#else
// What products read of IEEE binary16, two to a word: the numbers that a widened copy would hold, by integers. A signalling
// NaN stays one until the product makes it quiet.

// Lanes hold 16 bits each.
fn of_f16(half: vec4<u32>) -> vec4<f32> {
    let magnitude = half & vec4(0x7fffu);
    let digits = magnitude << vec4(13u);
    let above = select(vec4(0x38000000u), vec4(0x70000000u), magnitude >= vec4(0x7c00u));
    // Exact, and no f32 is so small that an adapter might take it for 0.
    let small = bitcast<vec4<u32>>(vec4<f32>(magnitude) * 0x1p-24f);
    let number = select(digits + above, small, magnitude < vec4(0x400u));
    return bitcast<vec4<f32>>(number | ((half & vec4(0x8000u)) << vec4(16u)));
}
fn f16_four(words: vec2<u32>) -> vec4<f32> {
    let low = words & vec2(0xffffu);
    let high = words >> vec2(16u);
    return of_f16(vec4(low.x, high.x, low.y, high.y));
}
// Of the lower half of a word.
fn f16_one(word: u32) -> f32 { return of_f16(vec4(word & 0xffffu)).x; }
#endif
#endif
#if A_BF16 || B_BF16
// What products read of bfloat16, two to a word: the numbers that a widened copy would hold. A signalling NaN stays one until
// the product makes it quiet.
fn bf16_four(words: vec2<u32>) -> vec4<f32> {
    let low = words << vec2(16u);
    let high = words & vec2(0xffff0000u);
    return bitcast<vec4<f32>>(vec4(low.x, high.x, low.y, high.y));
}
// Of the lower half of a word.
fn bf16_one(word: u32) -> f32 { return bitcast<f32>(word << 16u); }
#endif
#if A_F16
// Elements of A as f16, two to a word.
alias AWord = u32;
alias AFour = vec2<u32>;
const A_IN_WORD = 2u;
fn a_of_four(four: AFour) -> vec4<f32> { return f16_four(four); }
fn a_of_word(word: AWord, i: u32) -> f32 { return f16_one(word >> (i % 2u * 16u)); }
#elif A_BF16
// Elements of A as bf16, two to a word.
alias AWord = u32;
alias AFour = vec2<u32>;
const A_IN_WORD = 2u;
fn a_of_four(four: AFour) -> vec4<f32> { return bf16_four(four); }
fn a_of_word(word: AWord, i: u32) -> f32 { return bf16_one(word >> (i % 2u * 16u)); }
#else
// Elements of A in 32 bits.
alias AWord = f32;
alias AFour = vec4<f32>;
const A_IN_WORD = 1u;
fn a_of_four(four: AFour) -> vec4<f32> { return four; }
fn a_of_word(word: AWord, i: u32) -> f32 { return word; }
#endif
#if B_F16
// Elements of B as f16, two to a word.
alias BWord = u32;
alias BFour = vec2<u32>;
const B_IN_WORD = 2u;
fn b_of_four(four: BFour) -> vec4<f32> { return f16_four(four); }
fn b_of_word(word: BWord, i: u32) -> f32 { return f16_one(word >> (i % 2u * 16u)); }
#elif B_BF16
// Elements of B as bf16, two to a word.
alias BWord = u32;
alias BFour = vec2<u32>;
const B_IN_WORD = 2u;
fn b_of_four(four: BFour) -> vec4<f32> { return bf16_four(four); }
fn b_of_word(word: BWord, i: u32) -> f32 { return bf16_one(word >> (i % 2u * 16u)); }
#elif B_INT8 || B_INT4 || B_NF4
// Elements of B in 4 or 8 bits.
#import common/codes
alias BWord = u32;
alias BFour = u32;
#else
// Elements of B in 32 bits.
alias BWord = f32;
alias BFour = vec4<f32>;
const B_IN_WORD = 1u;
fn b_of_four(four: BFour) -> vec4<f32> { return four; }
fn b_of_word(word: BWord, i: u32) -> f32 { return word; }
#endif

#if OPERANDS_VEC4
// Operands as vec4, for matrix products whose rows are multiples of four long.
@group(0) @binding(1) var<storage, read_write> a: array<AFour>;
@group(0) @binding(2) var<storage, read_write> b: array<BFour>;
#if STORE_VEC4
// Results as vec4.
@group(0) @binding(3) var<storage, read_write> c: array<vec4<f32>>;
#else
// Results one by one.
@group(0) @binding(3) var<storage, read_write> c: array<f32>;
#endif

fn read_a(i: u32) -> vec4<f32> { return a_of_four(a[i]); }
#if B_INT8 || B_INT4 || B_NF4
fn read_b(i: u32) -> vec4<f32> { return four_of_codes(i, b[codes_at(i)], b[scales_at(i)]); }
#else
fn read_b(i: u32) -> vec4<f32> { return b_of_four(b[i]); }
#endif
#else
// Operands element by element, for matrix products of any sizes and strides.
@group(0) @binding(1) var<storage, read_write> a: array<AWord>;
@group(0) @binding(2) var<storage, read_write> b: array<BWord>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

fn read_a(i: u32) -> f32 {
    return a_of_word(a[i / A_IN_WORD], i);
}
#if B_INT8 || B_INT4 || B_NF4
fn read_b(i: u32) -> f32 { return one_of_codes(i, b[codes_at(i / 4u)], b[scales_at(i / 4u)]); }
#else
fn read_b(i: u32) -> f32 {
    return b_of_word(b[i / B_IN_WORD], i);
}
#endif
fn read_four_a(i: vec4<u32>) -> vec4<f32> { return vec4(read_a(i.x), read_a(i.y), read_a(i.z), read_a(i.w)); }
fn read_four_b(i: vec4<u32>) -> vec4<f32> { return vec4(read_b(i.x), read_b(i.y), read_b(i.z), read_b(i.w)); }
#endif
#if !MATMUL

// Four steps of K for one row of the tile, in the order of K.
fn step4(
    s: vec4<f32>, b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>, acc: vec4<f32>,
) -> vec4<f32> {
    return fma(vec4(s.w), b3, fma(vec4(s.z), b2, fma(vec4(s.y), b1, fma(vec4(s.x), b0, acc))));
}
#endif
