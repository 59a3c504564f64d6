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
