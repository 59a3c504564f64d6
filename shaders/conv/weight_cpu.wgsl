// conv_weight_cpu: a part of the weight's gradient, for CPU adapters     32 result channels x 32 columns per workgroup
// src [batch, groups * kc, h, w], dy [batch, groups * m, h', w'] -> parts [parts, groups * m, kc * taps]
//   dw[o, c, r, s] = Σ over images and pixels of dy[o, pixel] x[c, pixel's r, s]; the pixels are cut into parts
// grid: tiles_m * tiles_n * groups * parts workgroups, folded: tile = wg.y * grid_x + wg.x, channels innermost
//   tiles_m = ceil(m / 32), tiles_n = ceil(kc * taps / 32)
// overrides: none      requires: subgroups of at least LANES; fewer than 65,000 pixels in a part
#import conv/weight
#import conv/source
#import common/lanes
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

alias Row = f32;
// Where the i-th channel that a lane reads lies in an image. Channels past the last one repeat it and are never stored.
fn channel_at(row0: u32, lane: u32, i: u32, plane: u32) -> u32 {
    return min(row0 + i * LANES + lane % LANES, p.m - 1u) * plane;
}

// Lanes share loads of channels of dy. A lane owns four columns, eight apart.
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
#repeat i $(32 / LANES)
    let at$i = channel_at(row0, lane, $(i)u, dy_plane);
#endrepeat
    let first = part * p.part_len;
    let end = min(first + p.part_len, p.batch * dy_plane);
    var image = first / dy_plane;
    var pixel = first - image * dy_plane;
    var oy = pixel / p.result.y;
    var ox = pixel - oy * p.result.y;
#repeat i 32
    var c$i = vec4<f32>();
#endrepeat
    for (var k = first; k < end; k++) {
        let a_base = (image * p.groups + group) * p.m * dy_plane + pixel;
#repeat i $(32 / LANES)
        let v$i = dy[a_base + at$i];
#endrepeat
        let b = taken(column, (image * p.groups + group) * p.kc * p.image.x * p.image.y, oy, ox);
#repeat i 32
        c$i = fma(vec4(subgroupBroadcast(v$(i / LANES), $(i % LANES)u)), b, c$i);
#endrepeat
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
#repeat i 31
        c$i = c$(i + 1);
#endrepeat
    }
}
