// conv_weight_cpu: a part of the weight's gradient, for CPU adapters     32 result channels x 32 columns per workgroup
// src [batch, groups * kc, h, w], dy [batch, groups * m, h', w'] -> parts [parts, groups * m, kc * taps]
//   dw[o, c, r, s] = Σ over images and pixels of dy[o, pixel] x[c, pixel's r, s]; the pixels are cut into parts
// grid: tiles_m * tiles_n * groups * parts workgroups, folded: tile = wg.y * grid_x + wg.x, channels innermost
//   tiles_m = ceil(m / 32), tiles_n = ceil(kc * taps / 32)
// overrides: none      requires: subgroups of at least 8; fewer than 65,000 pixels in a part
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

// As in matmul_cpu_nn, each lane fetches other channels of dy and subgroupBroadcast hands them round. A lane owns
// four columns, a lane's width apart.
@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let tile = wg.y * p.grid_x + wg.x;
    let tile_m = tile % p.tiles_m;
    let tile_n = tile / p.tiles_m % p.tiles_n;
    let group = tile / (p.tiles_m * p.tiles_n) % p.groups;
    let part = tile / (p.tiles_m * p.tiles_n * p.groups);
    if (part >= p.parts) {
        return;
    }
    let columns = p.kc * p.kernel.x * p.kernel.y;
    let own = vec4(tile_n * 32u + local.x) + vec4(0u, 8u, 16u, 24u);
    let column = taps_of(min(own, vec4(columns - 1u)), group);
    let row0 = tile_m * 32u;
    let dy_plane = p.result.x * p.result.y;
    let a0_at = min(row0 + lane % 8u, p.m - 1u) * dy_plane;
    let a1_at = min(row0 + 8u + lane % 8u, p.m - 1u) * dy_plane;
    let a2_at = min(row0 + 16u + lane % 8u, p.m - 1u) * dy_plane;
    let a3_at = min(row0 + 24u + lane % 8u, p.m - 1u) * dy_plane;
    let first = part * p.part_len;
    let end = min(first + p.part_len, p.batch * dy_plane);
    var image = first / dy_plane;
    var pixel = first - image * dy_plane;
    var oy = pixel / p.result.y;
    var ox = pixel - oy * p.result.y;
    var c0 = vec4<f32>(); var c1 = vec4<f32>(); var c2 = vec4<f32>(); var c3 = vec4<f32>();
    var c4 = vec4<f32>(); var c5 = vec4<f32>(); var c6 = vec4<f32>(); var c7 = vec4<f32>();
    var c8 = vec4<f32>(); var c9 = vec4<f32>(); var c10 = vec4<f32>(); var c11 = vec4<f32>();
    var c12 = vec4<f32>(); var c13 = vec4<f32>(); var c14 = vec4<f32>(); var c15 = vec4<f32>();
    var c16 = vec4<f32>(); var c17 = vec4<f32>(); var c18 = vec4<f32>(); var c19 = vec4<f32>();
    var c20 = vec4<f32>(); var c21 = vec4<f32>(); var c22 = vec4<f32>(); var c23 = vec4<f32>();
    var c24 = vec4<f32>(); var c25 = vec4<f32>(); var c26 = vec4<f32>(); var c27 = vec4<f32>();
    var c28 = vec4<f32>(); var c29 = vec4<f32>(); var c30 = vec4<f32>(); var c31 = vec4<f32>();
    for (var k = first; k < end; k++) {
        let a_base = (image * p.groups + group) * p.m * dy_plane + pixel;
        let a0 = dy[a_base + a0_at];
        let a1 = dy[a_base + a1_at];
        let a2 = dy[a_base + a2_at];
        let a3 = dy[a_base + a3_at];
        let b = taken(column, (image * p.groups + group) * p.kc * p.image.x * p.image.y, oy, ox);
        c0 = fma(vec4(subgroupBroadcast(a0, 0u)), b, c0);
        c1 = fma(vec4(subgroupBroadcast(a0, 1u)), b, c1);
        c2 = fma(vec4(subgroupBroadcast(a0, 2u)), b, c2);
        c3 = fma(vec4(subgroupBroadcast(a0, 3u)), b, c3);
        c4 = fma(vec4(subgroupBroadcast(a0, 4u)), b, c4);
        c5 = fma(vec4(subgroupBroadcast(a0, 5u)), b, c5);
        c6 = fma(vec4(subgroupBroadcast(a0, 6u)), b, c6);
        c7 = fma(vec4(subgroupBroadcast(a0, 7u)), b, c7);
        c8 = fma(vec4(subgroupBroadcast(a1, 0u)), b, c8);
        c9 = fma(vec4(subgroupBroadcast(a1, 1u)), b, c9);
        c10 = fma(vec4(subgroupBroadcast(a1, 2u)), b, c10);
        c11 = fma(vec4(subgroupBroadcast(a1, 3u)), b, c11);
        c12 = fma(vec4(subgroupBroadcast(a1, 4u)), b, c12);
        c13 = fma(vec4(subgroupBroadcast(a1, 5u)), b, c13);
        c14 = fma(vec4(subgroupBroadcast(a1, 6u)), b, c14);
        c15 = fma(vec4(subgroupBroadcast(a1, 7u)), b, c15);
        c16 = fma(vec4(subgroupBroadcast(a2, 0u)), b, c16);
        c17 = fma(vec4(subgroupBroadcast(a2, 1u)), b, c17);
        c18 = fma(vec4(subgroupBroadcast(a2, 2u)), b, c18);
        c19 = fma(vec4(subgroupBroadcast(a2, 3u)), b, c19);
        c20 = fma(vec4(subgroupBroadcast(a2, 4u)), b, c20);
        c21 = fma(vec4(subgroupBroadcast(a2, 5u)), b, c21);
        c22 = fma(vec4(subgroupBroadcast(a2, 6u)), b, c22);
        c23 = fma(vec4(subgroupBroadcast(a2, 7u)), b, c23);
        c24 = fma(vec4(subgroupBroadcast(a3, 0u)), b, c24);
        c25 = fma(vec4(subgroupBroadcast(a3, 1u)), b, c25);
        c26 = fma(vec4(subgroupBroadcast(a3, 2u)), b, c26);
        c27 = fma(vec4(subgroupBroadcast(a3, 3u)), b, c27);
        c28 = fma(vec4(subgroupBroadcast(a3, 4u)), b, c28);
        c29 = fma(vec4(subgroupBroadcast(a3, 5u)), b, c29);
        c30 = fma(vec4(subgroupBroadcast(a3, 6u)), b, c30);
        c31 = fma(vec4(subgroupBroadcast(a3, 7u)), b, c31);
        // Counting on costs less than dividing.
        pixel += 1u;
        ox += 1u;
        let row_ends = ox == p.result.y;
        ox = select(ox, 0u, row_ends);
        oy += select(0u, 1u, row_ends);
        let image_ends = pixel == dy_plane;
        pixel = select(pixel, 0u, image_ends);
        oy = select(oy, 0u, image_ends);
        image += select(0u, 1u, image_ends);
    }
    // One store for all rows, the accumulators moving up behind it: a store per row doubles the compile time.
    let to = ((part * p.groups + group) * p.m + row0) * columns;
    for (var row = 0u; row < min(32u, p.m - row0); row += 1u) {
        store(to + row * columns, own, columns, c0);
        c0 = c1; c1 = c2; c2 = c3; c3 = c4;
        c4 = c5; c5 = c6; c6 = c7; c7 = c8;
        c8 = c9; c9 = c10; c10 = c11; c11 = c12;
        c12 = c13; c13 = c14; c14 = c15; c15 = c16;
        c16 = c17; c17 = c18; c18 = c19; c19 = c20;
        c20 = c21; c21 = c22; c22 = c23; c23 = c24;
        c24 = c25; c25 = c26; c26 = c27; c27 = c28;
        c28 = c29; c29 = c30; c30 = c31;
    }
}
