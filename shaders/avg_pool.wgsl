// avg_pool: y = the mean of each window or bin
// x [n, c, h, w] -> y [n, c, h', w']
// grid: one thread per element of y, folded      overrides: ADAPTIVE, COUNT_PADDING
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.total) {
        return;
    }
    let plane = p.result.x * p.result.y;
    let image = i / plane;
    let oy = (i - image * plane) / p.result.y;
    let rows = row_bin(oy);
    let columns = column_bin(i - image * plane - oy * p.result.y);
    let base = image * p.image.x * p.image.y;
    var sum = 0.0;
    for (var r = rows.start; r < rows.end; r++) {
        for (var s = columns.start; s < columns.end; s++) {
            sum += x[base + r * p.image.y + s];
        }
    }
    y[i] = sum / f32(rows.size * columns.size);
}
