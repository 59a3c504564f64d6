// Casts: with PACK to 16 bits, with UNPACK from 16 bits (F16 or BF16, two elements to a word, the first in the lower half), with
// DECODE from 8 or 4 bits, with ENCODE to 8 or 4 bits, else
// between f32 and u32: f32 -> u32 truncates and saturates, NaN becomes 0; u32 -> f32 rounds to nearest
// x [n] -> y [n]; ENCODE: x [n], scalars [9] (graph::StepScalars) -> y [n]
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
#elif ENCODE
#import common/codes
#import common/random
struct Params {
    threads_x: u32,
    elements: u32,
    blocks: u32,
    key: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<storage, read_write> scalars: array<u32>;

const LARGEST = f32((1u << (CODE_BITS - 1u)) - 1u);
const INFINITY = 0x7f800000u;

var<workgroup> largest: array<u32, 64>;
// Of each quad: its codes of 4 bits in the lower half, the scale of its group in the upper half.
var<workgroup> encoded: array<u32, 64>;

fn largest_of_4(i: u32) -> u32 {
    return max(max(largest[i], largest[i + 1u]), max(largest[i + 2u], largest[i + 3u]));
}

// The nearest bf16 of the group's largest magnitude over the outermost level; 0 where that is subnormal; NaN where the group
// has NaN or infinity.
fn scale_bits(most: u32) -> u32 {
    if (most >= INFINITY) { return 0x7fc0u; }
    let bits = bitcast<u32>(bitcast<f32>(most) / LARGEST);
    let nearest = min((bits + 0x7fffu + (bits >> 16u & 1u)) >> 16u, 0x7f7fu);
    return select(nearest, 0u, nearest < 0x80u);
}

// A workgroup encodes two blocks, a thread a quad: 16 threads a group.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = thread_number(id, p.threads_x);
    // Elements beyond the last are padding.
    let inside = vec4(4u * i) + vec4(0u, 1u, 2u, 3u) < vec4(p.elements);
    let bits = select(vec4(0u), x[min(i, (p.elements - 1u) / 4u)], inside);
    // As whole numbers: a magnitude of NaN is above that of infinity, and that above all others.
    let magnitudes = bits & vec4(0x7fffffffu);
    largest[l] = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
    workgroupBarrier();
    let g = l & 48u;
    let most = max(max(largest_of_4(g), largest_of_4(g + 4u)), max(largest_of_4(g + 8u), largest_of_4(g + 12u)));
    let scale = scale_bits(most);
    // Without a scale, and where it is NaN, codes are those of 0.
    let known = scale > 0u && scale < 0x7f80u;
    let v = bitcast<vec4<f32>>(select(vec4(0u), bits, known));
    let per_level = 1.0 / bitcast<f32>(select(0x3f80u, scale, known) << 16u);
    let drawn = pcg4d(vec4(i, p.key, scalars[3] ^ scalars[5], scalars[4]));
    let up = vec4<f32>(drawn >> vec4(8u)) * 5.9604645e-8;
    let levels = clamp(floor(v * per_level + up), vec4(-LARGEST), vec4(LARGEST));
    let codes = vec4<u32>(levels + (LARGEST + 1.0));
    let packed = codes.x | codes.y << CODE_BITS | codes.z << (2u * CODE_BITS) | codes.w << (3u * CODE_BITS);
    encoded[l] = scale << 16u | (packed & 0xffffu);
    workgroupBarrier();
    if (i / 32u >= p.blocks) { return; }
#if INT8
    y[codes_at(i)] = packed;
#else
    if (i % 2u == 0u) { y[codes_at(i)] = packed | encoded[l + 1u] << 16u; }
#endif
    if (i % 32u == 0u) { y[scales_at(i)] = scale | (encoded[l + 16u] & 0xffff0000u); }
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
