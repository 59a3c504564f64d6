// reduce: y[part, o] = scale · Σ x, Σ x² or max x over an outer and an inner dimension, or over a part of them
// x [any]; o counts the kept positions of shape keep -> y [parts, outputs]
// The longer job is cut into parts: the outer dimension, or the inner one where the outer has length 1.
// A part keeps far below 65,535 turns of its loops: lavapipe ends a thread's loops there without a word.
// grid: one thread per output and part, folded      overrides: MODE (0 sum, 1 max, 2 sum of squares)
#import common/grid
#import common/nan
override MODE: u32 = 0u;
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
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn combine(sum: f32, v: f32) -> f32 {
    return select(sum + v, or_nan1(sum, or_nan1(v, max(sum, v))), MODE == 1u);
}

fn take(i: u32) -> f32 {
    let v = x[i];
    return select(v, v * v, MODE == 2u);
}

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.outputs * p.parts) {
        return;
    }
    let part = i / p.outputs;
    let base = offset_of(coordinates(i - part * p.outputs, p.keep), p.keep_strides);
    let first = part * p.part_len;
    let cut_inner = p.outer == 1u;
    let outer_first = select(first, 0u, cut_inner);
    let outer_end = select(min(first + p.part_len, p.outer), 1u, cut_inner);
    let inner_first = select(0u, first, cut_inner);
    let inner_end = select(p.inner, min(first + p.part_len, p.inner), cut_inner);
    // A maximum starts from an element: nothing is below -inf.
    let own = base + outer_first * p.outer_stride + inner_first * p.inner_stride;
    let start = select(0.0, x[own], MODE == 1u);
    // In blocks of at most 256 elements, and those by 64 lines: one long sum would lose the digits of its terms.
    var total = start;
    var lines = start;
    for (var o = outer_first; o < outer_end; o++) {
        let line = base + o * p.outer_stride;
        let step = p.inner_stride;
        for (var block = inner_first; block < inner_end; block += 256u) {
            let block_end = block + min(256u, inner_end - block);
            // Four sums in turn: shorter chains.
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
    total = combine(total, lines);
    y[i] = total * p.scale;
}
