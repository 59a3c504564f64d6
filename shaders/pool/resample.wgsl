// Result pixel o reads the image at max(0, scale o + shift) / unit, for each axis, exactly: in integers.
#import common/grid
override NEAREST: bool = false;
struct Axis {
    image: u32,
    result: u32,
    scale: u32,
    shift: i32,
    unit: u32,
    unused0: u32,
    unused1: u32,
    unused2: u32,
}
struct Params {
    threads_x: u32,
    total: u32,
    pieces: vec2<u32>, // rows and columns of pieces of a sum, for a thread each
    piece: vec2<u32>,
    unused0: u32,
    unused1: u32,
    y: Axis,
    x: Axis,
}
@group(0) @binding(0) var<uniform> p: Params;

struct Place {
    low: u32,
    high: u32,
    // Weight of the higher neighbour.
    share: f32,
}

fn place_of(o: u32, axis: Axis) -> Place {
    let at = u32(max(0, i32(o * axis.scale) + axis.shift));
    let low = min(at / axis.unit, axis.image - 1u);
    if (NEAREST) {
        return Place(low, low, 0.0);
    }
    return Place(low, min(low + 1u, axis.image - 1u), f32(at - low * axis.unit) / f32(axis.unit));
}

// The share of image pixel i in what result pixel o reads.
fn share_of(i: u32, o: u32, axis: Axis) -> f32 {
    let place = place_of(o, axis);
    return select(0.0, 1.0 - place.share, place.low == i) + select(0.0, place.share, place.high == i);
}

// First and end of the result pixels that may read image pixel i.
fn readers(i: u32, axis: Axis) -> vec2<u32> {
    if (axis.scale == 0u) {
        return vec2(0u, axis.result);
    }
    let scale = i32(axis.scale);
    let low = max(0, (i32(i) - 1) * i32(axis.unit) - axis.shift) / scale;
    let high = max(0, (i32(i) + 1) * i32(axis.unit) - axis.shift) / scale + 1;
    let last = axis.result - 1u;
    return vec2(select(min(u32(low), last), 0u, i == 0u), select(min(u32(high), last), last, i + 1u == axis.image) + 1u);
}

#if GRADIENT
#import common/pieces
// resample_grad: dx = the sum of dy over the result pixels that read the element, by their share, or over a piece of them
// dy [n, c, h', w'] -> dx [pieces, n, c, h, w]
// grid: one thread per element of dx, folded      overrides: NEAREST
@group(0) @binding(1) var<storage, read_write> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let job = thread_number(id, p.threads_x);
    if (job >= p.total * p.pieces.x * p.pieces.y) {
        return;
    }
    let number = job / p.total;
    let i = job - number * p.total;
    let plane = p.y.image * p.x.image;
    let image = i / plane;
    let iy = (i - image * plane) / p.x.image;
    let ix = i - image * plane - iy * p.x.image;
    let rows = piece_of(readers(iy, p.y), number / p.pieces.y, p.piece.x);
    let columns = piece_of(readers(ix, p.x), number % p.pieces.y, p.piece.y);
    var sum = 0.0;
    for (var r = rows.x; r < rows.y; r++) {
        let row_share = share_of(iy, r, p.y);
        var row_sum = 0.0;
        for (var first = columns.x; first < columns.y; first += BLOCK) {
            var block_sum = 0.0;
            for (var s = first; s < block_end(first, columns.y); s++) {
                let share = row_share * share_of(ix, s, p.x);
                // Not a product with zero: what does not read the element may be infinite.
                if (share != 0.0) {
                    block_sum = fma(share, dy[(image * p.y.result + r) * p.x.result + s], block_sum);
                }
            }
            row_sum += block_sum;
        }
        sum += row_sum;
    }
    dx[job] = sum;
}
#else
// resample: y = x read between its pixels
// x [n, c, h, w] -> y [n, c, h', w']
// grid: one thread per element of y, folded      overrides: NEAREST
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.total) {
        return;
    }
    let plane = p.y.result * p.x.result;
    let image = i / plane;
    let oy = (i - image * plane) / p.x.result;
    let row = place_of(oy, p.y);
    let column = place_of(i - image * plane - oy * p.x.result, p.x);
    let low = (image * p.y.image + row.low) * p.x.image;
    if (NEAREST) {
        y[i] = x[low + column.low];
        return;
    }
    let high = (image * p.y.image + row.high) * p.x.image;
    let above = (1.0 - column.share) * x[low + column.low] + column.share * x[low + column.high];
    let below = (1.0 - column.share) * x[high + column.low] + column.share * x[high + column.high];
    y[i] = (1.0 - row.share) * above + row.share * below;
}
#endif
