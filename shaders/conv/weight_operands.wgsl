// The gradient of a convolution's weight, for kernels that compute matrix products in tiles: one product for each group and
// part. What they ask for is said in tile/tile.
#import conv/weight
#import conv/source
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

// Neighbouring threads follow the pixels.
const A_ACROSS = false;
const B_ACROSS = false;

fn products() -> u32 { return p.groups * p.parts; }
// Channels innermost: workgroups that follow each other read the same columns.
fn corner(tile: u32, side: u32) -> vec2<u32> {
    return vec2(tile % p.tiles_m, tile / p.tiles_m) * side;
}
fn steps_of(product: u32) -> vec2<u32> {
    let first = product / p.groups * p.part_len;
    return vec2(first, min(first + p.part_len, p.batch * p.result.x * p.result.y));
}

// A step of the inner dimension: a result pixel of an image.
struct Step {
    image: u32,
    pixel: u32,
    y: u32,
    x: u32,
    live: bool,
}
fn step_of(k: u32, end: u32) -> Step {
    let at = min(k, end - 1u);
    let plane = p.result.x * p.result.y;
    let image = at / plane;
    let pixel = at - image * plane;
    let y = pixel / p.result.y;
    return Step(image, pixel, y, pixel - y * p.result.y, k < end);
}
// The step after one, without a division; a step past the end, which nothing reads, stays where it is.
fn step_after(step: Step, live: bool) -> Step {
    var next = step;
    next.live = live;
    if (live) {
        next.pixel += 1u;
        next.x += 1u;
        if (next.x == p.result.y) {
            next.x = 0u;
            next.y += 1u;
        }
        if (next.y == p.result.x) {
            next.y = 0u;
            next.pixel = 0u;
            next.image += 1u;
        }
    }
    return next;
}

// Four neighbouring result channels. Those past the last one repeat it and are never stored.
struct Rows {
    at: vec4<u32>,
}
fn rows_at(product: u32, row: u32) -> Rows {
    let row4 = min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(p.m - 1u));
    return Rows((product % p.groups * p.m + row4) * (p.result.x * p.result.y));
}
fn a_quad(rows: Rows, step: Step) -> vec4<f32> {
    let i = rows.at + (step.image * p.groups * p.m * p.result.x * p.result.y + step.pixel);
    return select(vec4<f32>(), vec4(dy[i.x], dy[i.y], dy[i.z], dy[i.w]), step.live);
}

// Four neighbouring columns, each a source channel and a tap.
struct Columns {
    taps: Taps,
    base: u32,
}
fn columns_at(product: u32, column: u32) -> Columns {
    let group = product % p.groups;
    let last = vec4(p.kc * p.kernel.x * p.kernel.y - 1u);
    let taps = taps_of(min(vec4(column) + vec4(0u, 1u, 2u, 3u), last), group);
    return Columns(taps, group * p.kc * p.image.x * p.image.y);
}
fn b_quad(columns: Columns, step: Step) -> vec4<f32> {
    let base = columns.base + step.image * p.groups * p.kc * p.image.x * p.image.y;
    // Steps past the end add 0 * 0, or an infinity at the last one would become NaN.
    return select(vec4<f32>(), taken(columns.taps, base, step.y, step.x), step.live);
}

// Where results of four neighbouring columns lie in row 0.
struct Results {
    at: u32,
    column: vec4<u32>,
}
fn results_at(product: u32, column: u32) -> Results {
    return Results(product * p.m * p.kc * p.kernel.x * p.kernel.y, vec4(column) + vec4(0u, 1u, 2u, 3u));
}
fn store_four(to: Results, row: u32, v: vec4<f32>) {
    let columns = p.kc * p.kernel.x * p.kernel.y;
    store(to.at + row * columns, to.column, columns, v);
}
fn store_row(near: Results, far: Results, row: u32, left: vec4<f32>, right: vec4<f32>) {
    store_four(near, row, left);
    store_four(far, row, right);
}
