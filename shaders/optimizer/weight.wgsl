// Weights in 32 or 16 bits, what the step says (graph::StepScalars), and the gradient as held: every update
// binds them.
#import common/elem
#import common/held
@group(0) @binding(3) var<storage, read_write> scalars: array<u32>;
#if F16 || BF16
#import common/random
#import common/half
// Weights in 16 bits, two to a word, rounded to nearest or, with STOCHASTIC, by chance: bits drawn from (seed, step, key,
// element), the key's highest bit set where dropout's is not.
override STOCHASTIC: bool = false;
@group(0) @binding(1) var<storage, read_write> w: array<vec2<u32>>;

fn weight_at(i: u32) -> vec4<f32> { return bitcast<vec4<f32>>(widened(w[i])); }

fn set_weight(i: u32, to: vec4<f32>) {
    var lanes = nearest_half(bitcast<vec4<u32>>(to));
    if (STOCHASTIC) {
        let drawn = pcg4d(vec4(p.first + i, p.key | 0x80000000u, scalars[3] ^ scalars[5], scalars[4]));
        lanes = drawn_half(bitcast<vec4<u32>>(to), drawn);
    }
    w[i] = lanes.xz | (lanes.yw << vec2(16u));
}
#else
// Weights in 32 bits.
@group(0) @binding(1) var<storage, read_write> w: array<InMemory>;

fn weight_at(i: u32) -> vec4<f32> { return from_memory(w[i]); }
fn set_weight(i: u32, to: vec4<f32>) { w[i] = to_memory(to); }
#endif
