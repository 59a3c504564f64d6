// Numbers of [-1, 1] in eight bits, as Dettmers et al. 2022 ("8-bit Optimizers via Block-wise Quantization") map them: seven
// decades from 1e-7 to 1, each cut into equal parts whose number doubles from decade to decade. Levels count from 0 (the
// number 0) upwards: 2^f to 2^(f+1) - 1 are the middles of the parts of decade f, the last one is 1. SHIFT is 0 for signed
// numbers, with 2^f parts, and 1 for those that are never negative, whose decades have twice as many and start at level 2.
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
// The largest magnitudes of m and v in each block of 256 elements.
@group(0) @binding(6) var<storage, read_write> most: array<vec2<f32>>;

const BLOCK_QUADS = 64u;

// The upper end of decade i. No branches: four elements at a time, and little to compile.
fn ten(i: vec4<u32>) -> vec4<f32> {
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
    let number = select(middle, vec4(1.0), level >= vec4(128u << shift));
    return select(number, vec4(0.0), level <= vec4(shift));
}

// The nearest levels to x of [0, 1].
fn level_of(x: vec4<f32>, shift: u32) -> vec4<u32> {
    var decade = vec4<u32>(x >= vec4(1e-6)) + vec4<u32>(x >= vec4(1e-5)) + vec4<u32>(x >= vec4(1e-4));
    decade += vec4<u32>(x >= vec4(1e-3)) + vec4<u32>(x >= vec4(1e-2)) + vec4<u32>(x >= vec4(1e-1));
    let parts = vec4(1u) << (decade + vec4(shift));
    let part = (x / ten(decade) - 0.1) / 0.9 * vec4<f32>(parts);
    let guess = parts + vec4<u32>(clamp(part, vec4(0.0), vec4<f32>(parts - vec4(1u))));
    // In a decade's first part the last level of the one below may be nearer, in its last part the next one.
    let other = select(guess + vec4(1u), guess - vec4(1u), part < vec4(1.0));
    let nearer = abs(x - number_of(other, shift)) < abs(x - number_of(guess, shift));
    return select(guess, other, nearer);
}

fn signed_of(code: vec4<u32>) -> vec4<f32> {
    let level = vec4<i32>(code) - vec4(127);
    return sign(vec4<f32>(level)) * number_of(vec4<u32>(abs(level)), 0u);
}

fn signed_code(x: vec4<f32>) -> vec4<u32> {
    let level = level_of(min(abs(x), vec4(1.0)), 0u);
    // -1 is not on the map.
    return select(vec4(127u) + level, vec4(127u) - min(level, vec4(127u)), x < vec4(0.0));
}

fn share_of(x: vec4<f32>, most: f32) -> vec4<f32> {
    return select(vec4(0.0), x / most, most > 0.0);
}

fn bytes(word: u32) -> vec4<u32> { return (vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u); }

fn word(codes: vec4<u32>) -> u32 {
    let placed = codes << vec4(0u, 8u, 16u, 24u);
    return placed.x | placed.y | placed.z | placed.w;
}

// The moments of four elements after this step, in 32 bits. The caller sets those past the tensor's end to 0.
struct Moments {
    first: vec4<f32>,
    second: vec4<f32>,
}

fn moments(i: u32) -> Moments {
    let gradient = bitcast<f32>(scalars[6]) * held_at(i);
    let a = bytes(m[i]);
    let b = bytes(v[i]);
    let old = most[i / BLOCK_QUADS];
    let first = old.x * signed_of(a);
    let second = old.y * number_of(b + vec4(1u), 1u);
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

fn larger(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return bitcast<vec2<f32>>(max(bitcast<vec2<u32>>(a), bitcast<vec2<u32>>(b)));
}

fn store(i: u32, after: Moments, largest: vec2<f32>) {
    let first = after.first;
    let second = after.second;
    m[i] = word(signed_code(share_of(first, largest.x)));
    v[i] = word(level_of(min(share_of(second, largest.y), vec4(1.0)), 1u) - vec4(1u));
    let rate = p.rate * bitcast<f32>(scalars[0]);
    let bias1 = bitcast<f32>(scalars[1]);
    let sqrt_bias2 = bitcast<f32>(scalars[2]);
    let weight = weight_at(i) * (1.0 - rate * p.weight_decay);
    set_weight(i, weight - rate / bias1 * first / (sqrt(second) / sqrt_bias2 + p.eps));
}
