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
