// A convolution, or the gradient of its image, for kernels that compute matrix products in tiles: one product for each
// group. What they ask for is said in tile/tile.
#import conv/conv
#import conv/source
#import conv/bias
#import common/store
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// Neighbouring threads follow the inner dimension of the weights, and the pixels of the source.
const A_ACROSS = false;
const B_ACROSS = true;

// The products of all groups for the first piece of their steps, then for the next, with results of their own.
fn products() -> u32 { return p.groups * p.y.parts; }
// Channels innermost: workgroups that follow each other read the same pixels.
fn corner(tile: u32, side: u32) -> vec2<u32> {
    return vec2(tile % p.tiles_m, tile / p.tiles_m) * side;
}
// Pieces begin at multiples of 32 steps. Where there are few steps the last pieces have none.
fn steps_of(product: u32) -> vec2<u32> {
    let steps = p.kc * p.y.taps * p.x.taps;
    let length = (steps + 32u * p.y.parts - 1u) / (32u * p.y.parts) * 32u;
    let first = min(product / p.groups * length, steps);
    return vec2(first, min(first + length, steps));
}

// A step of the inner dimension: its source channel and, for each axis, which of the phase's taps. Taps are innermost: weights
// of neighbouring steps are neighbours in memory, and steps read neighbouring pixels.
struct Step {
    channel: u32,
    r: u32,
    s: u32,
    live: bool,
}
fn step_of(k: u32, end: u32) -> Step {
    let at = min(k, end - 1u);
    let taps = p.y.taps * p.x.taps;
    let channel = at / taps;
    let tap = at - channel * taps;
    let r = tap / p.x.taps;
    return Step(channel, r, tap - r * p.x.taps, k < end);
}
// The step after one, without a division; a step past the end, which nothing reads, stays where it is.
fn step_after(step: Step, live: bool) -> Step {
    var next = step;
    next.live = live;
    if (live) {
        next.s += 1u;
        if (next.s == p.x.taps) {
            next.s = 0u;
            next.r += 1u;
        }
        if (next.r == p.y.taps) {
            next.r = 0u;
            next.channel += 1u;
        }
    }
    return next;
}

// Weights of four neighbouring result channels. Channels past the last one repeat it and are never stored.
struct Rows {
    at: vec4<u32>,
}
fn rows_at(product: u32, row: u32) -> Rows {
    let group = product % p.groups;
    let row4 = min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(p.m - 1u));
    return Rows(group * p.m * p.kc * p.weight_taps + row4 * p.weight_m);
}
fn a_quad(rows: Rows, step: Step) -> vec4<f32> {
    let tap = (p.y.first + step.r * p.y.every) * p.kernel_w + p.x.first + step.s * p.x.every;
    let i = rows.at + (step.channel * p.weight_c + tap);
    return select(vec4<f32>(), vec4(weights[i.x], weights[i.y], weights[i.z], weights[i.w]), step.live);
}

// Four neighbouring result pixels, and where they begin to read. Pixels past the last one repeat it and are never stored.
struct Columns {
    bases: Bases,
    y: vec4<i32>,
    x: vec4<i32>,
    channel0: u32,
}
fn pixels_at(column: u32) -> Pixels {
    return pixels(min(vec4(column) + vec4(0u, 1u, 2u, 3u), vec4(p.batch * p.y.count * p.x.count - 1u)));
}
fn columns_at(product: u32, column: u32) -> Columns {
    let group = product % p.groups;
    let at = pixels_at(column);
    let y = vec4<i32>(at.y * p.y.step) + p.y.off;
    let x = vec4<i32>(at.x * p.x.step) + p.x.off;
    return Columns(bases_of(at.image, group), y, x, group * p.kc);
}
fn b_quad(columns: Columns, step: Step) -> vec4<f32> {
    // Negative coordinates wrap to large ones.
    let y = vec4<u32>(columns.y + i32(step.r) * p.y.tap_step);
    let x = vec4<u32>(columns.x + i32(step.s) * p.x.tap_step);
    let inside = (y < vec4(p.y.src)) & (x < vec4(p.x.src)) & vec4(step.live);
    let pixel = select(vec4<u32>(), y * p.x.src + x, inside);
    let v = source(columns.bases, step.channel, pixel, terms_of(columns.channel0 + step.channel));
    return select(vec4<f32>(), v, inside);
}

// Where results of four neighbouring columns lie in row 0.
struct Results {
    at: vec4<u32>,
    live: vec4<bool>,
    channel0: u32,
    biased: bool,
}
fn results_at(product: u32, column: u32) -> Results {
    let group = product % p.groups;
    let part = product / p.groups;
    let before = part * (p.batch * p.groups * p.m * p.y.dst * p.x.dst);
    let live = vec4(column) + vec4(0u, 1u, 2u, 3u) < vec4(p.batch * p.y.count * p.x.count);
    return Results(before + result_at(pixels_at(column), group), live, group * p.m, part == 0u);
}
fn store_four(to: Results, row: u32, v: vec4<f32>) {
    store(to.at + row * p.y.dst * p.x.dst, to.live, v + select(0.0, bias_of(to.channel0 + row), to.biased));
}
fn store_row(near: Results, far: Results, row: u32, left: vec4<f32>, right: vec4<f32>) {
    store_four(near, row, left);
    store_four(far, row, right);
}
