// Weights in 32 or 16 bits, what the step says (graph::StepScalars), and the gradient as held: every update
// binds them.
#import common/elem
#import common/held
@group(0) @binding(3) var<storage, read_write> scalars: array<u32>;
#if F16 || BF16
#import common/half
@group(0) @binding(1) var<storage, read_write> w: array<vec2<u32>>;

fn store_halves(i: u32, lanes: vec4<u32>) { w[i] = lanes.xz | (lanes.yw << vec2(16u)); }
#if CORRECTION
// Weights in 24 bits: the nearest bfloat16, of two the one away from zero, and in signed bytes, the first the lowest, what is
// missing to the number in 1/256 of the distance to the next bfloat16.
@group(0) @binding(7) var<storage, read_write> correction: array<u32>;
override TAIL: u32 = 4u; // elements of the last vec4

fn weight_at(i: u32) -> vec4<f32> {
    let bits = widened(w[i]);
    let magnitude = bits & vec4(0x7fffffffu);
    let bytes = bitcast<vec4<i32>>(vec4(correction[i]) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u);
    // Zero has nothing below it, and there is nothing beside what is not finite.
    let corrected = bitcast<vec4<u32>>(max(bitcast<vec4<i32>>(magnitude) + bytes * 256, vec4(0)));
    let number = select(corrected, magnitude, magnitude >= vec4(0x7f800000u));
    return bitcast<vec4<f32>>((bits & vec4(0x80000000u)) | number);
}

fn set_weight(i: u32, to: vec4<f32>) {
    let bits = bitcast<vec4<u32>>(to);
    let magnitude = bits & vec4(0x7fffffffu);
    // The nearest multiple of 256, ties to even.
    let rounded = (magnitude + vec4(0x7fu) + ((magnitude >> vec4(8u)) & vec4(1u))) >> vec4(8u);
    let upper = (rounded + vec4(0x80u)) >> vec4(8u);
    let is_nan = magnitude > vec4(0x7f800000u);
    let half = select(upper, vec4(0x40u) | (magnitude >> vec4(16u)), is_nan);
    store_halves(i, ((bits >> vec4(16u)) & vec4(0x8000u)) | half);
    let is_past_end = vec4(i + 1u == p.quads) & (vec4(0u, 1u, 2u, 3u) >= vec4(TAIL));
    let missing = select((rounded - (upper << vec4(8u))) & vec4(0xffu), vec4(0u), is_nan | is_past_end);
    let bytes = missing << vec4(0u, 8u, 16u, 24u);
    correction[i] = bytes.x | bytes.y | bytes.z | bytes.w;
}
#else
#import common/random
// Weights in 16 bits, two to a word, rounded to nearest or, with STOCHASTIC, by chance: bits drawn from (seed, step, key,
// element), the key's highest bit set where dropout's is not.
override STOCHASTIC: bool = false;

fn weight_at(i: u32) -> vec4<f32> { return bitcast<vec4<f32>>(widened(w[i])); }

fn set_weight(i: u32, to: vec4<f32>) {
    var lanes = nearest_half(bitcast<vec4<u32>>(to));
    if (STOCHASTIC) {
        let drawn = pcg4d(vec4(p.first + i, p.key | 0x80000000u, scalars[3] ^ scalars[5], scalars[4]));
        lanes = drawn_half(bitcast<vec4<u32>>(to), drawn);
    }
    store_halves(i, lanes);
}
#endif
#else
// Weights in 32 bits.
@group(0) @binding(1) var<storage, read_write> w: array<InMemory>;

fn weight_at(i: u32) -> vec4<f32> { return from_memory(w[i]); }
fn set_weight(i: u32, to: vec4<f32>) { w[i] = to_memory(to); }
#endif
