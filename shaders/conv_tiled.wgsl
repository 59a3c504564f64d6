// conv_tiled: convolution, or the gradient of its image, for GPUs     64 channels x 64 pixels per workgroup of 64
// src [batch, groups * kc, h, w], weights as strides say, bias [groups * m]? -> c [batch, groups * m, h', w']
// grid: tiles_m * tiles_n * groups workgroups, folded: tile = wg.y * grid_x + wg.x, channels innermost
//   tiles_m = ceil(m / 64), tiles_n = ceil(batch * pixels of the phase / 64)
// overrides: none      requires: 8704 bytes of workgroup memory
@group(0) @binding(1) var<storage, read_write> src: array<f32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// Sixteen steps, sixteen quads of rows (of columns) each; a row of 17 spreads a store over all banks.
const PITCH = 17u;
var<workgroup> a_tile: array<vec4<f32>, 272>;
var<workgroup> b_tile: array<vec4<f32>, 272>;

// Step k of the inner dimension: its source channel and, for each axis, which of the phase's taps.
struct Step {
    channel: u32,
    r: u32,
    s: u32,
}
fn step_of(k: u32) -> Step {
    let tap = k / p.kc;
    let r = tap / p.x.taps;
    return Step(k - tap * p.kc, r, tap - r * p.x.taps);
}

// Weights of four neighbouring result channels. Channels past the last one repeat it and are never stored.
fn a_quad(base: u32, row: u32, k: u32, steps: u32) -> vec4<f32> {
    let at = step_of(min(k, max(steps, 1u) - 1u));
    let tap = (p.y.first + at.r * p.y.every) * p.kernel_w + p.x.first + at.s * p.x.every;
    let row4 = min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(p.m - 1u));
    let i = base + row4 * p.weight_m + at.channel * p.weight_c + tap;
    return select(vec4<f32>(), vec4(weights[i.x], weights[i.y], weights[i.z], weights[i.w]), k < steps);
}

fn b_quad(bases: Bases, y0: vec4<i32>, x0: vec4<i32>, k: u32, steps: u32, channel0: u32) -> vec4<f32> {
    let at = step_of(k);
    // Negative coordinates wrap to large ones.
    let y = vec4<u32>(y0 + i32(at.r) * p.y.tap_step);
    let x = vec4<u32>(x0 + i32(at.s) * p.x.tap_step);
    let inside = (y < vec4(p.y.src)) & (x < vec4(p.x.src)) & vec4(k < steps);
    let pixel = select(vec4<u32>(), y * p.x.src + x, inside);
    let v = source(bases, at.channel, pixel, terms_of(channel0 + at.channel));
    return select(vec4<f32>(), v, inside);
}

fn store_row(near: vec4<u32>, far: vec4<u32>, own: u32, group: u32, row: u32, left: vec4<f32>, right: vec4<f32>) {
    if (row >= p.m) {
        return;
    }
    let bias = bias_of(group * p.m + row);
    let up = row * p.y.dst * p.x.dst;
    let count = p.batch * p.y.count * p.x.count;
    let across = own + vec4(0u, 1u, 2u, 3u);
    store(near + up, across < vec4(count), left + bias);
    store(far + up, across + 32u < vec4(count), right + bias);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = wg.y * p.grid_x + wg.x;
    let group = tile / (p.tiles_m * p.tiles_n);
    if (group >= p.groups) {
        return;
    }
    let row0 = tile % p.tiles_m * 64u;
    let col0 = tile / p.tiles_m % p.tiles_n * 64u;
    let last = p.batch * p.y.count * p.x.count - 1u;
    // A thread owns row quads y and y + 8, column quads x and x + 8.
    let x = thread % 8u;
    let y = thread / 8u;
    // While loading, neighbouring threads follow the inner dimension of the weights and the pixels of the source.
    let inner = thread % 16u;
    let outer = thread / 16u;
    let loaded = pixels(min(vec4(col0 + inner * 4u) + vec4(0u, 1u, 2u, 3u), vec4(last)));
    let bases = bases_of(loaded.image, group);
    let y0 = vec4<i32>(loaded.y * p.y.step) + p.y.off;
    let x0 = vec4<i32>(loaded.x * p.x.step) + p.x.off;
    let weight_base = group * p.m * p.kc * p.weight_taps;
    let steps = p.kc * p.y.taps * p.x.taps;
    var l0 = vec4<f32>(); var r0 = vec4<f32>();
    var l1 = vec4<f32>(); var r1 = vec4<f32>();
    var l2 = vec4<f32>(); var r2 = vec4<f32>();
    var l3 = vec4<f32>(); var r3 = vec4<f32>();
    var l4 = vec4<f32>(); var r4 = vec4<f32>();
    var l5 = vec4<f32>(); var r5 = vec4<f32>();
    var l6 = vec4<f32>(); var r6 = vec4<f32>();
    var l7 = vec4<f32>(); var r7 = vec4<f32>();
    for (var k0 = 0u; k0 < steps; k0 += 16u) {
        for (var i = outer; i < 16u; i += 4u) {
            a_tile[inner * PITCH + i] = a_quad(weight_base, row0 + i * 4u, k0 + inner, steps);
            b_tile[i * PITCH + inner] = b_quad(bases, y0, x0, k0 + i, steps, group * p.kc);
        }
        workgroupBarrier();
        for (var k = 0u; k < 16u; k += 1u) {
            let s = a_tile[k * PITCH + y];
            let t = a_tile[k * PITCH + y + 8u];
            let left = b_tile[k * PITCH + x];
            let right = b_tile[k * PITCH + x + 8u];
            l0 = fma(vec4(s.x), left, l0); r0 = fma(vec4(s.x), right, r0);
            l1 = fma(vec4(s.y), left, l1); r1 = fma(vec4(s.y), right, r1);
            l2 = fma(vec4(s.z), left, l2); r2 = fma(vec4(s.z), right, r2);
            l3 = fma(vec4(s.w), left, l3); r3 = fma(vec4(s.w), right, r3);
            l4 = fma(vec4(t.x), left, l4); r4 = fma(vec4(t.x), right, r4);
            l5 = fma(vec4(t.y), left, l5); r5 = fma(vec4(t.y), right, r5);
            l6 = fma(vec4(t.z), left, l6); r6 = fma(vec4(t.z), right, r6);
            l7 = fma(vec4(t.w), left, l7); r7 = fma(vec4(t.w), right, r7);
        }
        workgroupBarrier();
    }
    let own = col0 + x * 4u;
    let near = result_at(pixels(min(vec4(own) + vec4(0u, 1u, 2u, 3u), vec4(last))), group);
    let far = result_at(pixels(min(vec4(own) + vec4(32u, 33u, 34u, 35u), vec4(last))), group);
    let row = row0 + y * 4u;
    store_row(near, far, own, group, row + 0u, l0, r0);
    store_row(near, far, own, group, row + 1u, l1, r1);
    store_row(near, far, own, group, row + 2u, l2, r2);
    store_row(near, far, own, group, row + 3u, l3, r3);
    store_row(near, far, own, group, row + 32u, l4, r4);
    store_row(near, far, own, group, row + 33u, l5, r5);
    store_row(near, far, own, group, row + 34u, l6, r6);
    store_row(near, far, own, group, row + 35u, l7, r7);
}
