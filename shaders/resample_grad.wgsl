// resample_grad: dx = the sum of dy over the result pixels that read the element, by their share
// dy [n, c, h', w'] -> dx [n, c, h, w]
// grid: one thread per element of dx, folded      overrides: NEAREST
@group(0) @binding(1) var<storage, read_write> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.total) {
        return;
    }
    let plane = p.y.image * p.x.image;
    let image = i / plane;
    let iy = (i - image * plane) / p.x.image;
    let ix = i - image * plane - iy * p.x.image;
    let rows = readers(iy, p.y);
    let columns = readers(ix, p.x);
    var sum = 0.0;
    for (var r = rows.x; r <= rows.y; r++) {
        let row_share = share_of(iy, r, p.y);
        for (var s = columns.x; s <= columns.y; s++) {
            let share = row_share * share_of(ix, s, p.x);
            if (share != 0.0) {
                sum = fma(share, dy[(image * p.y.result + r) * p.x.result + s], sum);
            }
        }
    }
    dx[i] = sum;
}
