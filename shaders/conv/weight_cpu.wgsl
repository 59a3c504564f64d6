// conv_weight_cpu: a part of the weight's gradient, for CPU adapters     32 result channels x 32 columns per workgroup
// src [batch, groups * kc, h, w], dy [batch, groups * m, h', w'] -> parts [parts, groups * m, kc * taps]
//   dw[o, c, r, s] = Σ over images and pixels of dy[o, pixel] x[c, pixel's r, s]; the pixels are cut into parts
// grid: tiles_m * tiles_n * groups * parts workgroups, folded: tile = wg.y * grid_x + wg.x, channels innermost
//   tiles_m = ceil(m / 32), tiles_n = ceil(kc * taps / 32)
// overrides: none      requires: subgroups of at least LANES; fewer than 65,000 pixels in a part
#import conv/weight
#import conv/source
#import common/share
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

alias Row = f32;
// Where the i-th channel that a lane reads lies in an image. Channels past the last one repeat it and are never stored.
fn channel_at(row0: u32, lane: u32, i: u32, plane: u32) -> u32 {
    return min(row0 + i * LANES + lane % LANES, p.m - 1u) * plane;
}

// As in matmul_cpu_nn, each lane fetches other channels of dy and hands them round. A lane owns four columns, eight apart.
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
    let at0 = channel_at(row0, lane, 0u, dy_plane);
    let at1 = channel_at(row0, lane, 1u, dy_plane);
    let at2 = channel_at(row0, lane, 2u, dy_plane);
    let at3 = channel_at(row0, lane, 3u, dy_plane);
    // For lanes of which there are four.
    let at4 = channel_at(row0, lane, 4u, dy_plane);
    let at5 = channel_at(row0, lane, 5u, dy_plane);
    let at6 = channel_at(row0, lane, 6u, dy_plane);
    let at7 = channel_at(row0, lane, 7u, dy_plane);
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
        var rows: Shared;
        rows.v0 = dy[a_base + at0];
        rows.v1 = dy[a_base + at1];
        rows.v2 = dy[a_base + at2];
        rows.v3 = dy[a_base + at3];
        if (LANES < 8u) {
            rows.v4 = dy[a_base + at4];
            rows.v5 = dy[a_base + at5];
            rows.v6 = dy[a_base + at6];
            rows.v7 = dy[a_base + at7];
        }
        let b = taken(column, (image * p.groups + group) * p.kc * p.image.x * p.image.y, oy, ox);
        c0 = fma(vec4(shared0(rows)), b, c0);
        c1 = fma(vec4(shared1(rows)), b, c1);
        c2 = fma(vec4(shared2(rows)), b, c2);
        c3 = fma(vec4(shared3(rows)), b, c3);
        c4 = fma(vec4(shared4(rows)), b, c4);
        c5 = fma(vec4(shared5(rows)), b, c5);
        c6 = fma(vec4(shared6(rows)), b, c6);
        c7 = fma(vec4(shared7(rows)), b, c7);
        c8 = fma(vec4(shared8(rows)), b, c8);
        c9 = fma(vec4(shared9(rows)), b, c9);
        c10 = fma(vec4(shared10(rows)), b, c10);
        c11 = fma(vec4(shared11(rows)), b, c11);
        c12 = fma(vec4(shared12(rows)), b, c12);
        c13 = fma(vec4(shared13(rows)), b, c13);
        c14 = fma(vec4(shared14(rows)), b, c14);
        c15 = fma(vec4(shared15(rows)), b, c15);
        c16 = fma(vec4(shared16(rows)), b, c16);
        c17 = fma(vec4(shared17(rows)), b, c17);
        c18 = fma(vec4(shared18(rows)), b, c18);
        c19 = fma(vec4(shared19(rows)), b, c19);
        c20 = fma(vec4(shared20(rows)), b, c20);
        c21 = fma(vec4(shared21(rows)), b, c21);
        c22 = fma(vec4(shared22(rows)), b, c22);
        c23 = fma(vec4(shared23(rows)), b, c23);
        c24 = fma(vec4(shared24(rows)), b, c24);
        c25 = fma(vec4(shared25(rows)), b, c25);
        c26 = fma(vec4(shared26(rows)), b, c26);
        c27 = fma(vec4(shared27(rows)), b, c27);
        c28 = fma(vec4(shared28(rows)), b, c28);
        c29 = fma(vec4(shared29(rows)), b, c29);
        c30 = fma(vec4(shared30(rows)), b, c30);
        c31 = fma(vec4(shared31(rows)), b, c31);
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
    // One store for all rows, the accumulators moving up after it: a store per row doubles the compile time.
    let to = ((part * p.groups + group) * p.m + row0) * columns;
    for (var row = 0u; row < min(32u, p.m - row0); row += 1u) {
        store(to + row * columns, own, columns, c0);
        c0 = c1; c1 = c2; c2 = c3; c3 = c4; c4 = c5; c5 = c6; c6 = c7; c7 = c8; c8 = c9; c9 = c10; c10 = c11;
        c11 = c12; c12 = c13; c13 = c14; c14 = c15; c15 = c16; c16 = c17; c17 = c18; c18 = c19; c19 = c20;
        c20 = c21; c21 = c22; c22 = c23; c23 = c24; c24 = c25; c25 = c26; c26 = c27; c27 = c28; c28 = c29;
        c29 = c30; c30 = c31;
    }
}
