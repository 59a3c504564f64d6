// conv_weight_tiled: a part of the weight's gradient, for GPUs     64 result channels x 64 columns per workgroup of 64
// src [batch, groups * kc, h, w], dy [batch, groups * m, h', w'] -> parts [parts, groups * m, kc * taps]
// grid: tiles_m * tiles_n * groups * parts workgroups, folded: tile = wg.y * grid_x + wg.x, channels innermost
//   tiles_m = ceil(m / 64), tiles_n = ceil(kc * taps / 64)
// overrides: none      requires: 8704 bytes of workgroup memory
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

// Sixteen steps, sixteen quads of rows (of columns) each; a row of 17 spreads a store over all banks.
const PITCH = 17u;
var<workgroup> a_tile: array<vec4<f32>, 272>;
var<workgroup> b_tile: array<vec4<f32>, 272>;

fn a_quad(base: u32, row: u32, plane: u32, inside: bool) -> vec4<f32> {
    let i = base + min(vec4(row) + vec4(0u, 1u, 2u, 3u), vec4(p.m - 1u)) * plane;
    return select(vec4<f32>(), vec4(dy[i.x], dy[i.y], dy[i.z], dy[i.w]), inside);
}

fn store_row(base: u32, row: u32, column: u32, columns: u32, left: vec4<f32>, right: vec4<f32>) {
    if (row < p.m) {
        store(base + row * columns, vec4(column) + vec4(0u, 1u, 2u, 3u), columns, left);
        store(base + row * columns, vec4(column) + vec4(32u, 33u, 34u, 35u), columns, right);
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let tile = wg.y * p.grid_x + wg.x;
    let group = tile / (p.tiles_m * p.tiles_n) % p.groups;
    let part = tile / (p.tiles_m * p.tiles_n * p.groups);
    if (part >= p.parts) {
        return;
    }
    let row0 = tile % p.tiles_m * 64u;
    let col0 = tile / p.tiles_m % p.tiles_n * 64u;
    let columns = p.kc * p.kernel.x * p.kernel.y;
    let last = vec4(columns - 1u);
    // A thread owns row quads y and y + 8, column quads x and x + 8.
    let tx = thread % 8u;
    let ty = thread / 8u;
    // While loading, neighbouring threads follow the pixels; each loads four quads of rows and of columns.
    let inner = thread % 16u;
    let outer = thread / 16u;
    let four = vec4(0u, 1u, 2u, 3u) + col0 + outer * 4u;
    let taps0 = taps_of(min(four, last), group);
    let taps1 = taps_of(min(four + 16u, last), group);
    let taps2 = taps_of(min(four + 32u, last), group);
    let taps3 = taps_of(min(four + 48u, last), group);
    let plane = p.result.x * p.result.y;
    let first = part * p.part_len;
    let end = min(first + p.part_len, p.batch * plane);
    var l0 = vec4<f32>(); var r0 = vec4<f32>();
    var l1 = vec4<f32>(); var r1 = vec4<f32>();
    var l2 = vec4<f32>(); var r2 = vec4<f32>();
    var l3 = vec4<f32>(); var r3 = vec4<f32>();
    var l4 = vec4<f32>(); var r4 = vec4<f32>();
    var l5 = vec4<f32>(); var r5 = vec4<f32>();
    var l6 = vec4<f32>(); var r6 = vec4<f32>();
    var l7 = vec4<f32>(); var r7 = vec4<f32>();
    for (var k0 = first; k0 < end; k0 += 16u) {
        let inside = k0 + inner < end;
        let k = min(k0 + inner, end - 1u);
        let image = k / plane;
        let pixel = k - image * plane;
        let oy = pixel / p.result.y;
        let ox = pixel - oy * p.result.y;
        let a_base = (image * p.groups + group) * p.m * plane + pixel;
        let base = (image * p.groups + group) * p.kc * p.image.x * p.image.y;
        let row = row0 + outer * 4u;
        let at = inner * PITCH + outer;
        a_tile[at] = a_quad(a_base, row, plane, inside);
        a_tile[at + 4u] = a_quad(a_base, row + 16u, plane, inside);
        a_tile[at + 8u] = a_quad(a_base, row + 32u, plane, inside);
        a_tile[at + 12u] = a_quad(a_base, row + 48u, plane, inside);
        // Steps past the end add 0 * 0, or an infinity at the last one would turn to NaN.
        b_tile[at] = select(vec4<f32>(), taken(taps0, base, oy, ox), inside);
        b_tile[at + 4u] = select(vec4<f32>(), taken(taps1, base, oy, ox), inside);
        b_tile[at + 8u] = select(vec4<f32>(), taken(taps2, base, oy, ox), inside);
        b_tile[at + 12u] = select(vec4<f32>(), taken(taps3, base, oy, ox), inside);
        workgroupBarrier();
        for (var k = 0u; k < 16u; k += 1u) {
            let s = a_tile[k * PITCH + ty];
            let t = a_tile[k * PITCH + ty + 8u];
            let left = b_tile[k * PITCH + tx];
            let right = b_tile[k * PITCH + tx + 8u];
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
    let base = (part * p.groups + group) * p.m * columns;
    let row = row0 + ty * 4u;
    let column = col0 + tx * 4u;
    store_row(base, row + 0u, column, columns, l0, r0);
    store_row(base, row + 1u, column, columns, l1, r1);
    store_row(base, row + 2u, column, columns, l2, r2);
    store_row(base, row + 3u, column, columns, l3, r3);
    store_row(base, row + 32u, column, columns, l4, r4);
    store_row(base, row + 33u, column, columns, l5, r5);
    store_row(base, row + 34u, column, columns, l6, r6);
    store_row(base, row + 35u, column, columns, l7, r7);
}
