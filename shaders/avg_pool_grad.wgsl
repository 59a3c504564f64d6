// avg_pool_grad: dx = the sum of dy / size over the windows or bins that the element lies in
// dy [n, c, h', w'] -> dx [n, c, h, w]
// grid: one thread per element of dx, folded      overrides: ADAPTIVE, COUNT_PADDING
@group(0) @binding(1) var<storage, read_write> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.total) {
        return;
    }
    let plane = p.image.x * p.image.y;
    let image = i / plane;
    let iy = (i - image * plane) / p.image.y;
    let ix = i - image * plane - iy * p.image.y;
    let rows = bins_over(iy, p.image.x, p.result.x, p.kernel.x, p.stride.x, p.padding.x);
    let columns = bins_over(ix, p.image.y, p.result.y, p.kernel.y, p.stride.y, p.padding.y);
    let base = image * p.result.x * p.result.y;
    var sum = 0.0;
    for (var r = rows.x; r <= rows.y; r++) {
        let row = row_bin(r);
        for (var s = columns.x; s <= columns.y; s++) {
            let column = column_bin(s);
            if (iy >= row.start && iy < row.end && ix >= column.start && ix < column.end) {
                sum += dy[base + r * p.result.y + s] / f32(row.size * column.size);
            }
        }
    }
    dx[i] = sum;
}
