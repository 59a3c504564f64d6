// conv_cpu: convolution, or the gradient of its image, for CPU adapters     16 channels x 64 pixels per workgroup
// src [batch, groups * kc, h, w], packed by conv_pack -> c [batch, groups * m, h', w']
// grid: tiles_m * tiles_n * groups workgroups, folded: tile = wg.y * grid_x + wg.x, channels innermost
//   tiles_m = ceil(m / 16), tiles_n = ceil(batch * pixels of the phase / 64)
// LANES are the lanes that share loads (common/share); AT_ONCE source channels are read in one iteration (conv/unroll)
// overrides: none      requires: subgroups of at least LANES; for lavapipe at most 65,000 iterations of the loops over taps and channels
#import conv/conv
#import conv/source
#import conv/unroll
#import common/share
#import common/store
@group(0) @binding(2) var<storage, read_write> a: array<Row>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// Sixteen rows of weights.
fn read_rows(at: u32, lane: u32) -> Shared {
    let own = at + lane % LANES;
    var all: Shared;
    all.v0 = a[own];
    all.v1 = a[own + LANES];
    if (LANES < 8u) {
        all.v2 = a[own + 2u * LANES];
        all.v3 = a[own + 3u * LANES];
    }
    return all;
}

// As in matmul_cpu_nn, each lane fetches other weights and hands them round. A lane owns eight pixels, eight apart.
// Pixels past the edge repeat the last one and are not stored; taps outside of the image read element 0 of their image
// and count as zero. No branch surrounds a broadcast.
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
    var c0 = vec4<f32>(); var d0 = vec4<f32>(); var c1 = vec4<f32>(); var d1 = vec4<f32>();
    var c2 = vec4<f32>(); var d2 = vec4<f32>(); var c3 = vec4<f32>(); var d3 = vec4<f32>();
    var c4 = vec4<f32>(); var d4 = vec4<f32>(); var c5 = vec4<f32>(); var d5 = vec4<f32>();
    var c6 = vec4<f32>(); var d6 = vec4<f32>(); var c7 = vec4<f32>(); var d7 = vec4<f32>();
    var c8 = vec4<f32>(); var d8 = vec4<f32>(); var c9 = vec4<f32>(); var d9 = vec4<f32>();
    var c10 = vec4<f32>(); var d10 = vec4<f32>(); var c11 = vec4<f32>(); var d11 = vec4<f32>();
    var c12 = vec4<f32>(); var d12 = vec4<f32>(); var c13 = vec4<f32>(); var d13 = vec4<f32>();
    var c14 = vec4<f32>(); var d14 = vec4<f32>(); var c15 = vec4<f32>(); var d15 = vec4<f32>();
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
                let rows = read_rows(a_tile + (tap * iterations + k) * 16u, lane);
                let channels = channels_of(group, k);
                let near_pixels = pixels_at(channels, near_bases, near_at, near_in);
                let far_pixels = pixels_at(channels, far_bases, far_at, far_in);
                let s0 = shared0(rows);
                c0 = add_products(s0, near_pixels, c0);
                d0 = add_products(s0, far_pixels, d0);
                let s1 = shared1(rows);
                c1 = add_products(s1, near_pixels, c1);
                d1 = add_products(s1, far_pixels, d1);
                let s2 = shared2(rows);
                c2 = add_products(s2, near_pixels, c2);
                d2 = add_products(s2, far_pixels, d2);
                let s3 = shared3(rows);
                c3 = add_products(s3, near_pixels, c3);
                d3 = add_products(s3, far_pixels, d3);
                let s4 = shared4(rows);
                c4 = add_products(s4, near_pixels, c4);
                d4 = add_products(s4, far_pixels, d4);
                let s5 = shared5(rows);
                c5 = add_products(s5, near_pixels, c5);
                d5 = add_products(s5, far_pixels, d5);
                let s6 = shared6(rows);
                c6 = add_products(s6, near_pixels, c6);
                d6 = add_products(s6, far_pixels, d6);
                let s7 = shared7(rows);
                c7 = add_products(s7, near_pixels, c7);
                d7 = add_products(s7, far_pixels, d7);
                let s8 = shared8(rows);
                c8 = add_products(s8, near_pixels, c8);
                d8 = add_products(s8, far_pixels, d8);
                let s9 = shared9(rows);
                c9 = add_products(s9, near_pixels, c9);
                d9 = add_products(s9, far_pixels, d9);
                let s10 = shared10(rows);
                c10 = add_products(s10, near_pixels, c10);
                d10 = add_products(s10, far_pixels, d10);
                let s11 = shared11(rows);
                c11 = add_products(s11, near_pixels, c11);
                d11 = add_products(s11, far_pixels, d11);
                let s12 = shared12(rows);
                c12 = add_products(s12, near_pixels, c12);
                d12 = add_products(s12, far_pixels, d12);
                let s13 = shared13(rows);
                c13 = add_products(s13, near_pixels, c13);
                d13 = add_products(s13, far_pixels, d13);
                let s14 = shared14(rows);
                c14 = add_products(s14, near_pixels, c14);
                d14 = add_products(s14, far_pixels, d14);
                let s15 = shared15(rows);
                c15 = add_products(s15, near_pixels, c15);
                d15 = add_products(s15, far_pixels, d15);
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
        c0 = c1; c1 = c2; c2 = c3; c3 = c4; c4 = c5; c5 = c6; c6 = c7; c7 = c8; c8 = c9; c9 = c10; c10 = c11;
        c11 = c12; c12 = c13; c13 = c14; c14 = c15; d0 = d1; d1 = d2; d2 = d3; d3 = d4; d4 = d5; d5 = d6;
        d6 = d7; d7 = d8; d8 = d9; d9 = d10; d10 = d11; d11 = d12; d12 = d13; d13 = d14; d14 = d15;
    }
}
