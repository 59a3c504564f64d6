// Numbers of [-1, 1] in eight bits, as Dettmers et al. 2022 ("8-bit Optimizers via Block-wise Quantization") map them: seven
// decades from 1e-7 to 1, each cut into equal parts whose number doubles from decade to decade. Levels count from 0 (the
// number 0) upwards: 2^f to 2^(f+1) - 1 are the middles of the parts of decade f, the last one is 1. SHIFT is 0 for signed
// numbers, with 2^f parts, and 1 for those that are never negative, whose decades have twice as many and start at level 2.
//
// In four bits (Li et al. 2023, "Memory Efficient Optimizers with 4-bit States"), signed numbers have three decades, and
// those that are never negative are multiples of 1/16, without 0.
struct Params {
    threads_x: u32,
    quads: u32,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
    rate: f32, // factor of the step's learning rate
    key: u32,
    first: u32, // vec4s of the parameter before those updated
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read_write> m: array<u32>;
@group(0) @binding(5) var<storage, read_write> v: array<u32>;
// The largest magnitudes of m and v in each block.
@group(0) @binding(6) var<storage, read_write> most: array<vec2<f32>>;

#if FOUR_BITS
const DECADES = 3u;
const BLOCK_WORDS = 16u; // of 128 elements
const PER_WORD = 2u; // vec4s
#else
const DECADES = 7u;
const BLOCK_WORDS = 64u; // of 256 elements
const PER_WORD = 1u;
#endif
// Decades of eight bits that there are not.
const FEWER = 7u - DECADES;
const TOP = 1u << DECADES;

// The upper end of a decade. No branches: four elements at a time, and little to compile.
fn ten(decade: vec4<u32>) -> vec4<f32> {
    let i = decade + vec4(FEWER);
    var end = vec4(1e-6);
    end = select(end, vec4(1e-5), i >= vec4(1u));
    end = select(end, vec4(1e-4), i >= vec4(2u));
    end = select(end, vec4(1e-3), i >= vec4(3u));
    end = select(end, vec4(1e-2), i >= vec4(4u));
    end = select(end, vec4(1e-1), i >= vec4(5u));
    return select(end, vec4(1.0), i >= vec4(6u));
}

fn number_of(level: vec4<u32>, shift: u32) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(vec4<f32>(level));
    let parts = bitcast<vec4<f32>>(bits & vec4(0x7f800000u));
    let decade = (bits >> vec4(23u)) - vec4(127u + shift);
    let middle = ten(decade) * (0.1 + 0.9 * (vec4<f32>(level) - parts + 0.5) / parts);
    let number = select(middle, vec4(1.0), level >= vec4(TOP << shift));
    return select(number, vec4(0.0), level <= vec4(shift));
}

// The nearest levels to x of [0, 1].
fn level_of(x: vec4<f32>, shift: u32) -> vec4<u32> {
    var decade = vec4<u32>(x >= vec4(1e-6)) + vec4<u32>(x >= vec4(1e-5)) + vec4<u32>(x >= vec4(1e-4));
    decade += vec4<u32>(x >= vec4(1e-3)) + vec4<u32>(x >= vec4(1e-2)) + vec4<u32>(x >= vec4(1e-1));
    decade = max(decade, vec4(FEWER)) - vec4(FEWER);
    let parts = vec4(1u) << (decade + vec4(shift));
    let part = (x / ten(decade) - 0.1) / 0.9 * vec4<f32>(parts);
    let guess = parts + vec4<u32>(clamp(part, vec4(0.0), vec4<f32>(parts - vec4(1u))));
    // In a decade's first part the last level of the one below may be nearer, in its last part the next one.
    let other = select(guess + vec4(1u), guess - vec4(1u), part < vec4(1.0));
    let nearer = abs(x - number_of(other, shift)) < abs(x - number_of(guess, shift));
    return select(guess, other, nearer);
}

fn signed_of(code: vec4<u32>) -> vec4<f32> {
    let level = vec4<i32>(code) - vec4(i32(TOP) - 1);
    return sign(vec4<f32>(level)) * number_of(vec4<u32>(abs(level)), 0u);
}

fn signed_code(x: vec4<f32>) -> vec4<u32> {
    let level = level_of(min(abs(x), vec4(1.0)), 0u);
    // -1 is not on the map.
    let zero = vec4(TOP - 1u);
    return select(zero + level, zero - min(level, zero), x < vec4(0.0));
}

fn positive_of(code: vec4<u32>) -> vec4<f32> {
#if FOUR_BITS
    return vec4<f32>(code + vec4(1u)) / 16.0;
#else
    return number_of(code + vec4(1u), 1u);
#endif
}

fn positive_code(x: vec4<f32>) -> vec4<u32> {
#if FOUR_BITS
    return min(vec4<u32>(max(ceil(16.0 * x - 0.5), vec4(1.0))) - vec4(1u), vec4(15u));
#else
    return level_of(min(x, vec4(1.0)), 1u) - vec4(1u);
#endif
}

fn share_of(x: vec4<f32>, most: f32) -> vec4<f32> {
    return select(vec4(0.0), x / most, most > 0.0);
}

// The codes of vec4 i, of the word that has them.
fn codes_in(word: u32, i: u32) -> vec4<u32> {
#if FOUR_BITS
    return (vec4(word >> (16u * (i % 2u))) >> vec4(0u, 4u, 8u, 12u)) & vec4(15u);
#else
    return (vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u);
#endif
}

fn packed(codes: vec4<u32>) -> u32 {
#if FOUR_BITS
    let placed = codes << vec4(0u, 4u, 8u, 12u);
#else
    let placed = codes << vec4(0u, 8u, 16u, 24u);
#endif
    return placed.x | placed.y | placed.z | placed.w;
}

// The moments of four elements after this step, in 32 bits. The caller sets those past the tensor's end to 0.
struct Moments {
    first: vec4<f32>,
    second: vec4<f32>,
}

fn moments(i: u32) -> Moments {
    let gradient = bitcast<f32>(scalars[6]) * held_at(i);
    let word = i / PER_WORD;
    let old = most[word / BLOCK_WORDS];
    let first = old.x * signed_of(codes_in(m[word], i));
    let second = old.y * positive_of(codes_in(v[word], i));
    var after: Moments;
    after.first = mix(gradient, first, p.beta1);
    after.second = p.beta2 * second + (1.0 - p.beta2) * gradient * gradient;
    return after;
}

// Magnitudes are in the order of their bits, and NaN is above all.
fn largest(x: vec4<f32>) -> f32 {
    let magnitude = bitcast<vec4<u32>>(x) & vec4(0x7fffffffu);
    return bitcast<f32>(max(max(magnitude.x, magnitude.y), max(magnitude.z, magnitude.w)));
}

fn largest_of(after: Moments) -> vec2<f32> { return vec2(largest(after.first), largest(after.second)); }

fn larger(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return bitcast<vec2<f32>>(max(bitcast<vec2<u32>>(a), bitcast<vec2<u32>>(b)));
}

fn codes_of(after: Moments, largest: vec2<f32>) -> vec2<u32> {
    let first = packed(signed_code(share_of(after.first, largest.x)));
    return vec2(first, packed(positive_code(share_of(after.second, largest.y))));
}

fn update(i: u32, after: Moments) {
    if (i >= p.quads) {
        return;
    }
    let rate = p.rate * bitcast<f32>(scalars[0]);
    let bias1 = bitcast<f32>(scalars[1]);
    let sqrt_bias2 = bitcast<f32>(scalars[2]);
    let weight = weight_at(i) * (1.0 - rate * p.weight_decay);
    set_weight(i, weight - rate / bias1 * after.first / (sqrt(after.second) / sqrt_bias2 + p.eps));
}
