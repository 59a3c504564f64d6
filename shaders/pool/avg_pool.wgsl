// What an average is taken over, for each axis a range of the image: a window, or with ADAPTIVE one of `result` bins.
#import common/grid
#import common/pieces
override ADAPTIVE: bool = false;
override COUNT_PADDING: bool = false;
struct Params {
    threads_x: u32,
    total: u32,
    kernel: vec2<u32>, // pairs are (rows, columns)
    stride: vec2<u32>,
    padding: vec2<u32>,
    dilation: vec2<u32>,
    image: vec2<u32>,
    result: vec2<u32>,
    pieces: vec2<u32>, // of a sum, for a thread each
    piece: vec2<u32>,
}
@group(0) @binding(0) var<uniform> p: Params;

struct Bin {
    start: u32,
    end: u32,
    // What this axis contributes to the divisor.
    size: u32,
}

fn bin_of(o: u32, image: u32, result: u32, kernel: u32, stride: u32, padding: u32) -> Bin {
    if (ADAPTIVE) {
        let start = o * image / result;
        let end = ((o + 1u) * image + result - 1u) / result;
        return Bin(start, end, end - start);
    }
    let begin = o * stride;
    let to = min(begin + kernel, image + 2u * padding);
    let start = max(begin, padding) - padding;
    let end = min(max(to, padding) - padding, image);
    return Bin(start, end, select(end - start, to - begin, COUNT_PADDING));
}

fn row_bin(o: u32) -> Bin { return bin_of(o, p.image.x, p.result.x, p.kernel.x, p.stride.x, p.padding.x); }
fn column_bin(o: u32) -> Bin { return bin_of(o, p.image.y, p.result.y, p.kernel.y, p.stride.y, p.padding.y); }

// First and end of the bins that element i may lie in.
fn bins_over(i: u32, image: u32, result: u32, kernel: u32, stride: u32, padding: u32) -> vec2<u32> {
    if (ADAPTIVE) {
        return vec2(i * result / image, min(((i + 1u) * result - 1u) / image, result - 1u) + 1u);
    }
    let near = i + padding;
    // Elements after the last window are in no window.
    return vec2(min((max(near + stride, kernel) - kernel) / stride, result), min(near / stride + 1u, result));
}

#if GRADIENT
// avg_pool_grad: dx = the sum of dy / size over the windows or bins that the element lies in, or over a piece of them
// dy [n, c, h', w'] -> dx [pieces, n, c, h, w]
// grid: one thread per element of dx, folded      overrides: ADAPTIVE, COUNT_PADDING
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
    let plane = p.image.x * p.image.y;
    let image = i / plane;
    let iy = (i - image * plane) / p.image.y;
    let ix = i - image * plane - iy * p.image.y;
    let row_range = bins_over(iy, p.image.x, p.result.x, p.kernel.x, p.stride.x, p.padding.x);
    let column_range = bins_over(ix, p.image.y, p.result.y, p.kernel.y, p.stride.y, p.padding.y);
    let rows = piece_of(row_range, number / p.pieces.y, p.piece.x);
    let columns = piece_of(column_range, number % p.pieces.y, p.piece.y);
    let base = image * p.result.x * p.result.y;
    var sum = 0.0;
    for (var r = rows.x; r < rows.y; r++) {
        let row = row_bin(r);
        var row_sum = 0.0;
        for (var first = columns.x; first < columns.y; first += BLOCK) {
            var block_sum = 0.0;
            for (var s = first; s < block_end(first, columns.y); s++) {
                let column = column_bin(s);
                if (iy >= row.start && iy < row.end && ix >= column.start && ix < column.end) {
                    block_sum += dy[base + r * p.result.y + s] / f32(row.size * column.size);
                }
            }
            row_sum += block_sum;
        }
        sum += row_sum;
    }
    dx[job] = sum;
}
#else
// avg_pool: y = the mean of each window or bin, or what a piece of it adds to the mean
// x [n, c, h, w] -> y [pieces, n, c, h', w']
// grid: one thread per element of y, folded      overrides: ADAPTIVE, COUNT_PADDING
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let job = thread_number(id, p.threads_x);
    if (job >= p.total * p.pieces.x * p.pieces.y) {
        return;
    }
    let number = job / p.total;
    let i = job - number * p.total;
    let plane = p.result.x * p.result.y;
    let image = i / plane;
    let oy = (i - image * plane) / p.result.y;
    let row_range = row_bin(oy);
    let column_range = column_bin(i - image * plane - oy * p.result.y);
    let rows = piece_of(vec2(row_range.start, row_range.end), number / p.pieces.y, p.piece.x);
    let columns = piece_of(vec2(column_range.start, column_range.end), number % p.pieces.y, p.piece.y);
    let base = image * p.image.x * p.image.y;
    var sum = 0.0;
    for (var r = rows.x; r < rows.y; r++) {
        var row_sum = 0.0;
        for (var first = columns.x; first < columns.y; first += BLOCK) {
            var block_sum = 0.0;
            for (var s = first; s < block_end(first, columns.y); s++) {
                block_sum += x[base + r * p.image.y + s];
            }
            row_sum += block_sum;
        }
        sum += row_sum;
    }
    y[job] = sum / f32(row_range.size * column_range.size);
}
#endif
