// conv_cpu: convolution, or the gradient of its image, for CPU adapters     16 channels x 64 pixels per workgroup
// src [batch, groups * kc, h, w], packed by conv_pack -> c [batch, groups * m, h', w']
// grid: tiles_m * tiles_n * groups workgroups, folded: tile = wg.y * grid_x + wg.x, channels innermost
//   tiles_m = ceil(m / 16), tiles_n = ceil(batch * pixels of the phase / 64)
// LANES are the lanes that share loads (common/lanes); AT_ONCE source channels are read in one iteration (conv/unroll)
// overrides: none      requires: subgroups of at least LANES; for lavapipe at most 65,000 iterations of the loops over taps and channels
#import conv/conv
#import conv/source
#import conv/unroll
#import common/lanes
#import common/store
@group(0) @binding(2) var<storage, read_write> a: array<Row>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// Lanes share loads of weights. A lane owns eight pixels, eight apart.
// Pixels past the edge repeat the last one and are not stored; taps outside of the image read element 0 of their image
// and count as zero.
@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let tile = wg.y * p.grid_x + wg.x;
    let group = tile / (p.tiles_m * p.tiles_n);
    if (group >= p.groups) {
        return;
    }
    let tile_m = tile % p.tiles_m;
    let tile_n = tile / p.tiles_m % p.tiles_n;
    let count = p.batch * p.y.count * p.x.count;
    let own = vec4(tile_n * 64u + local.x) + vec4(0u, 8u, 16u, 24u);
    let near = pixels(min(own, vec4(count - 1u)));
    let far = pixels(min(own + 32u, vec4(count - 1u)));
    let near_bases = bases_of(near.image, group);
    let far_bases = bases_of(far.image, group);
    let near_y = vec4<i32>(near.y * p.y.step) + p.y.off;
    let near_x = vec4<i32>(near.x * p.x.step) + p.x.off;
    let far_y = vec4<i32>(far.y * p.y.step) + p.y.off;
    let far_x = vec4<i32>(far.x * p.x.step) + p.x.off;
    let iterations = (p.kc + AT_ONCE - 1u) / AT_ONCE;
    let a_tile = (group * p.tiles_m + tile_m) * p.weight_taps * iterations * 16u;
#repeat i 16
    var c$i = vec4<f32>();
    var d$i = vec4<f32>();
#endrepeat
    for (var r = 0u; r < p.y.taps; r++) {
        let ny = vec4<u32>(near_y + i32(r) * p.y.tap_step);
        let fy = vec4<u32>(far_y + i32(r) * p.y.tap_step);
        for (var s = 0u; s < p.x.taps; s++) {
            let nx = vec4<u32>(near_x + i32(s) * p.x.tap_step);
            let fx = vec4<u32>(far_x + i32(s) * p.x.tap_step);
            // Negative coordinates wrap to large ones.
            let near_in = (ny < vec4(p.y.src)) & (nx < vec4(p.x.src));
            let far_in = (fy < vec4(p.y.src)) & (fx < vec4(p.x.src));
            let near_at = select(vec4<u32>(), ny * p.x.src + nx, near_in);
            let far_at = select(vec4<u32>(), fy * p.x.src + fx, far_in);
            let tap = (p.y.first + r * p.y.every) * p.kernel_w + p.x.first + s * p.x.every;
            for (var k = 0u; k < iterations; k++) {
                let a_at = a_tile + (tap * iterations + k) * 16u + lane % LANES;
#repeat i $(16 / LANES)
                let v$i = a[a_at + $(i * LANES)u];
#endrepeat
                let channels = channels_of(group, k);
                let near_pixels = pixels_at(channels, near_bases, near_at, near_in);
                let far_pixels = pixels_at(channels, far_bases, far_at, far_in);
#repeat i 16
                let s$i = subgroupBroadcast(v$(i / LANES), $(i % LANES)u);
                c$i = add_products(s$i, near_pixels, c$i);
                d$i = add_products(s$i, far_pixels, d$i);
#endrepeat
            }
        }
    }
    // One store for all rows and both halves, the accumulators moving up after it: a store per row doubles the compile
    // time. That there are two halves is hidden, or compilers would write the store out twice.
    let halves = 1u + min(p.m, 1u);
    let row0 = tile_m * 16u;
    let bias_at = p.groups * p.tiles_m * p.weight_taps * iterations * 16u + (group * p.tiles_m + tile_m) * 16u;
    let dst_plane = p.y.dst * p.x.dst;
    let near_to = result_at(near, group);
    let far_to = result_at(far, group);
    let near_stored = own < vec4(count);
    let far_stored = own + 32u < vec4(count);
    for (var row = 0u; row < min(16u, p.m - row0); row += 1u) {
        let bias = first_of(a[bias_at + row]);
        for (var half = 0u; half < halves; half += 1u) {
            let second = half == 1u;
            let to = select(near_to, far_to, second) + (row0 + row) * dst_plane;
            store(to, select(near_stored, far_stored, second), select(c0, d0, second) + bias);
        }
#repeat i 15
        c$i = c$(i + 1);
        d$i = d$(i + 1);
#endrepeat
    }
}
