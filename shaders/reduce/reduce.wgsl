// reduce: y[part, o] = scale · Σ x, Σ x² or max x over an outer and an inner dimension, or over a part of them
// x [any], of frozen weights in codes with INT8, INT4 or NF4, in 16 bits with HELD_F16 or HELD_BF16; o counts the kept positions of
// shape keep -> y [parts, outputs]
// The longer job is cut into parts: the outer dimension, or the inner one where the outer has length 1.
// A part keeps far below 65,535 iterations of its loops: lavapipe ends a thread's loops there without a word.
// grid: one thread per output and part, folded; with WORKGROUP 16 threads, which combine what they reduced
// overrides: MODE (0 sum, 1 max, 2 sum of squares)
#import common/grid
#import common/nan
override MODE: u32 = 0u;
#if WORKGROUP
// Eight neighbouring outputs are read together, each by 16 lanes.
const OUTPUTS = 8u;
const LANES = 16u;
#else
const OUTPUTS = 32u;
const LANES = 1u;
#endif
const THREADS = OUTPUTS * LANES;
struct Params {
    threads_x: u32,
    outputs: u32,
    parts: u32,
    part_len: u32,
    keep: Six,
    keep_strides: Six,
    outer: u32,
    outer_stride: u32,
    inner: u32,
    inner_stride: u32,
    scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
#if INT8 || INT4 || NF4
#import common/codes
@group(0) @binding(1) var<storage, read_write> x: array<u32>;

fn x_at(i: u32) -> f32 {
    return one_of_codes(i, x[codes_at(i / 4u)], x[scales_at(i / 4u)]);
}
#else
#import common/elem
#import common/held

fn x_at(i: u32) -> f32 { return held_at(i); }
#endif

fn combine(sum: f32, v: f32) -> f32 {
    return select(sum + v, or_nan1(sum, or_nan1(v, max(sum, v))), MODE == 1u);
}

fn take(i: u32) -> f32 {
    let v = x_at(i);
    return select(v, v * v, MODE == 2u);
}

// Reduces from `first` to `end` of the dimension that is cut.
fn reduced(base: u32, first: u32, end: u32) -> f32 {
    let cut_inner = p.outer == 1u;
    let outer_first = select(first, 0u, cut_inner);
    let outer_end = select(end, 1u, cut_inner);
    let inner_first = select(0u, first, cut_inner);
    let inner_end = select(p.inner, end, cut_inner);
    // A maximum starts from an element: nothing is below -inf.
    let own = base + outer_first * p.outer_stride + inner_first * p.inner_stride;
    let start = select(0.0, x_at(own), MODE == 1u);
    // In blocks of at most 256 elements, and those by 64 lines: one long sum would lose the digits of its terms.
    var total = start;
    var lines = start;
    for (var o = outer_first; o < outer_end; o++) {
        let line = base + o * p.outer_stride;
        let step = p.inner_stride;
        for (var block = inner_first; block < inner_end; block += 256u) {
            let block_end = block + min(256u, inner_end - block);
            // Four sums, each of every fourth element: shorter chains.
            var a = start;
            var b = start;
            var c = start;
            var d = start;
            var r = block;
            for (; r + 4u <= block_end; r += 4u) {
                let at = line + r * step;
                a = combine(a, take(at));
                b = combine(b, take(at + step));
                c = combine(c, take(at + 2u * step));
                d = combine(d, take(at + 3u * step));
            }
            for (; r < block_end; r++) {
                a = combine(a, take(line + r * step));
            }
            lines = combine(lines, combine(combine(a, b), combine(c, d)));
        }
        if (((o - outer_first) & 63u) == 63u) {
            total = combine(total, lines);
            lines = start;
        }
    }
    return combine(total, lines);
}

// Reduces a lane's share of output and part `i`.
fn reduced_by(lane: u32, i: u32) -> f32 {
    let part = i / p.outputs;
    let base = offset_of(coordinates(i - part * p.outputs, p.keep), p.keep_strides);
    let end = min((part + 1u) * p.part_len, select(p.outer, p.inner, p.outer == 1u));
    let lane_len = (p.part_len + LANES - 1u) / LANES;
    // A lane past the end repeats the last element of a maximum, and adds nothing to a sum.
    let first = min(part * p.part_len + lane * lane_len, end - select(0u, 1u, MODE == 1u));
    return reduced(base, first, min(first + lane_len, end));
}

#if WORKGROUP
// Combined in a fixed order.
var<workgroup> results: array<f32, THREADS>;
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let thread = thread_number(id, p.threads_x);
    let i = thread / THREADS * OUTPUTS + thread % OUTPUTS;
    let live = i < p.outputs * p.parts;
#if WORKGROUP
    let lane = thread / OUTPUTS % LANES;
    let slot = lane * OUTPUTS + thread % OUTPUTS;
    if (live) {
        results[slot] = reduced_by(lane, i);
    }
    for (var width = LANES / 2u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if (live && lane < width) {
            results[slot] = combine(results[slot], results[slot + width * OUTPUTS]);
        }
    }
    if (live && lane == 0u) {
        y[i] = results[slot] * p.scale;
    }
#else
    if (live) {
        y[i] = reduced_by(0u, i) * p.scale;
    }
#endif
}
