// A window over images. Pairs are (rows, columns).
#import common/grid
struct Params {
    threads_x: u32,
    total: u32,
    kernel: vec2<u32>,
    stride: vec2<u32>,
    padding: vec2<u32>,
    dilation: vec2<u32>,
    image: vec2<u32>,
    result: vec2<u32>,
}
@group(0) @binding(0) var<uniform> p: Params;

#if GRADIENT
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
#else
#import common/nan
// max_pool: y = the largest element of each window, or its last NaN, at = where in the window it was (row * kernel width + column)
// x [n, c, h, w] -> y [n, c, h', w'], at: a byte for each element of y, four to a word, the first lowest
// grid: threads of four elements, folded      overrides: none      requires: windows of at most 255 elements
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> at: array<u32>;

fn pooled(i: u32) -> u32 {
    let plane = p.result.x * p.result.y;
    let image = i / plane;
    let oy = (i - image * plane) / p.result.y;
    let ox = i - image * plane - oy * p.result.y;
    let base = image * p.image.x * p.image.y;
    var best = 0.0;
    var tap = 255u;
    for (var r = 0u; r < p.kernel.x; r++) {
        // Negative coordinates wrap to large ones.
        let iy = oy * p.stride.x + r * p.dilation.x - p.padding.x;
        for (var s = 0u; s < p.kernel.y; s++) {
            let ix = ox * p.stride.y + s * p.dilation.y - p.padding.y;
            if (iy < p.image.x && ix < p.image.y) {
                let v = x[base + iy * p.image.y + ix];
                if (tap == 255u || v > best || nan1(v)) {
                    best = v;
                    tap = r * p.kernel.y + s;
                }
            }
        }
    }
    y[i] = best;
    return tap;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i * 4u >= p.total) {
        return;
    }
    var word = 0u;
    for (var k = 0u; k < min(4u, p.total - i * 4u); k++) {
        word |= pooled(i * 4u + k) << (8u * k);
    }
    at[i] = word;
}
#endif
