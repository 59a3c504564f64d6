// max_pool_grad: dx = the sum of dy over the windows whose maximum the element was
// at (as max_pool has it), dy [n, c, h', w'] -> dx [n, c, h, w]
// grid: one thread per element of dx, folded      overrides: none
@group(0) @binding(1) var<storage, read_write> at: array<u32>;
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;

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
    let base = image * p.result.x * p.result.y;
    var sum = 0.0;
    // The last tap belongs to the first window: sums go through windows in their order.
    for (var r = p.kernel.x; r > 0u; r--) {
        // Negative coordinates wrap to large ones.
        let ty = iy + p.padding.x - (r - 1u) * p.dilation.x;
        let oy = ty / p.stride.x;
        if (oy >= p.result.x || oy * p.stride.x != ty) {
            continue;
        }
        for (var s = p.kernel.y; s > 0u; s--) {
            let tx = ix + p.padding.y - (s - 1u) * p.dilation.y;
            let ox = tx / p.stride.y;
            if (ox >= p.result.y || ox * p.stride.y != tx) {
                continue;
            }
            let o = base + oy * p.result.y + ox;
            let tap = (at[o / 4u] >> (8u * (o % 4u))) & 255u;
            if (tap == (r - 1u) * p.kernel.y + s - 1u) {
                sum += dy[o];
            }
        }
    }
    dx[i] = sum;
}
