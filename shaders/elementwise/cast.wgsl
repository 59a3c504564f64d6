// Casts: with PACK to 16 bits, with UNPACK from 16 bits (F16 or BF16, two elements to a word, the first in the lower half), with
// DECODE from 8 or 4 bits, else
// between f32 and u32: f32 -> u32 truncates and saturates, NaN becomes 0; u32 -> f32 rounds to nearest
// x [n] -> y [n]
// grid: PACK, UNPACK and DECODE a thread per eight elements, else per four, folded      overrides: TO_U32
#import common/grid
#if PACK || UNPACK || DECODE
struct Params {
    threads_x: u32,
    eights: u32,
    quads: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
#if DECODE
#import common/codes
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
#else
#import common/half
@group(0) @binding(1) var<storage, read_write> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;
#endif
#endif
#if PACK

fn four(i: u32) -> vec2<u32> {
    let lanes = to_half(x[i]);
    return lanes.xz | (lanes.yw << vec2(16u));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.eights) {
        // Behind an odd number of fours nothing is read; what is written there is padding.
        y[i] = vec4(four(2u * i), four(min(2u * i + 1u, p.quads - 1u)));
    }
}
#elif UNPACK

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.eights) {
        let words = x[i];
        y[2u * i] = widened(words.xy);
        if (2u * i + 1u < p.quads) {
            y[2u * i + 1u] = widened(words.zw);
        }
    }
}
#elif DECODE

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.eights) {
        // Both quads are in one group.
        let scales = x[scales_at(2u * i)];
        y[2u * i] = four_of_codes(2u * i, x[codes_at(2u * i)], scales);
        if (2u * i + 1u < p.quads) {
            y[2u * i + 1u] = four_of_codes(2u * i + 1u, x[codes_at(2u * i + 1u)], scales);
        }
    }
}
#else
override TO_U32: bool = false;
struct Params {
    threads_x: u32,
    quads: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

// By bits: a compiler may assume that no float is NaN, and conversions out of range differ by driver.
fn to_u32(bits: vec4<u32>) -> vec4<u32> {
    let v = bitcast<vec4<f32>>(bits);
    let small = vec4<u32>(clamp(v, vec4(0.0), vec4(4294967040.0)));
    let magnitude = bits & vec4(0x7fffffffu);
    let negative = bits != magnitude;
    let huge = magnitude >= vec4(0x4f800000u); // 2^32
    let nan = magnitude > vec4(0x7f800000u);
    return select(select(small, vec4(0xffffffffu), huge), vec4(0u), negative | nan);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        if (TO_U32) {
            y[i] = to_u32(x[i]);
        } else {
            y[i] = bitcast<vec4<u32>>(vec4<f32>(x[i]));
        }
    }
}
#endif
