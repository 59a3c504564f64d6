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
