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
