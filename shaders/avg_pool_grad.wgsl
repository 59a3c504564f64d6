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
