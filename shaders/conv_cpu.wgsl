// conv_cpu: convolution, or the gradient of its image, for CPU adapters     16 channels x 64 pixels per workgroup
// src [batch, groups * kc, h, w], packed by conv_pack -> c [batch, groups * m, h', w']
// grid: tiles_m * tiles_n * groups workgroups, folded: tile = wg.y * grid_x + wg.x, channels innermost
//   tiles_m = ceil(m / 16), tiles_n = ceil(batch * pixels of the phase / 64)
// overrides: none      requires: subgroups of at least LANES; taps * kc / 4 below 65,000
@group(0) @binding(2) var<storage, read_write> a: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// Sixteen rows of weights, of four source channels each.
alias Row = vec4<f32>;
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

// Four source channels for one result channel.
fn step4(
    s: vec4<f32>, b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>, acc: vec4<f32>,
) -> vec4<f32> {
    return fma(vec4(s.w), b3, fma(vec4(s.z), b2, fma(vec4(s.y), b1, fma(vec4(s.x), b0, acc))));
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
    let kc4 = (p.kc + 3u) / 4u;
    let a_tile = (group * p.tiles_m + tile_m) * p.weight_taps * kc4 * 16u;
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
            for (var k = 0u; k < kc4; k++) {
                let a_at = a_tile + (tap * kc4 + k) * 16u;
                let rows = read_rows(a_at, lane);
                // Weights of channels past the last one are zero.
                let k0 = k * 4u;
                let k1 = min(k * 4u + 1u, p.kc - 1u);
                let k2 = min(k * 4u + 2u, p.kc - 1u);
                let k3 = min(k * 4u + 3u, p.kc - 1u);
                let t0 = terms_of(group * p.kc + k0);
                let t1 = terms_of(group * p.kc + k1);
                let t2 = terms_of(group * p.kc + k2);
                let t3 = terms_of(group * p.kc + k3);
                let b0 = select(vec4<f32>(), source(near_bases, k0, near_at, t0), near_in);
                let b1 = select(vec4<f32>(), source(near_bases, k1, near_at, t1), near_in);
                let b2 = select(vec4<f32>(), source(near_bases, k2, near_at, t2), near_in);
                let b3 = select(vec4<f32>(), source(near_bases, k3, near_at, t3), near_in);
                let e0 = select(vec4<f32>(), source(far_bases, k0, far_at, t0), far_in);
                let e1 = select(vec4<f32>(), source(far_bases, k1, far_at, t1), far_in);
                let e2 = select(vec4<f32>(), source(far_bases, k2, far_at, t2), far_in);
                let e3 = select(vec4<f32>(), source(far_bases, k3, far_at, t3), far_in);
                let s0 = shared0(rows);
                c0 = step4(s0, b0, b1, b2, b3, c0);
                d0 = step4(s0, e0, e1, e2, e3, d0);
                let s1 = shared1(rows);
                c1 = step4(s1, b0, b1, b2, b3, c1);
                d1 = step4(s1, e0, e1, e2, e3, d1);
                let s2 = shared2(rows);
                c2 = step4(s2, b0, b1, b2, b3, c2);
                d2 = step4(s2, e0, e1, e2, e3, d2);
                let s3 = shared3(rows);
                c3 = step4(s3, b0, b1, b2, b3, c3);
                d3 = step4(s3, e0, e1, e2, e3, d3);
                let s4 = shared4(rows);
                c4 = step4(s4, b0, b1, b2, b3, c4);
                d4 = step4(s4, e0, e1, e2, e3, d4);
                let s5 = shared5(rows);
                c5 = step4(s5, b0, b1, b2, b3, c5);
                d5 = step4(s5, e0, e1, e2, e3, d5);
                let s6 = shared6(rows);
                c6 = step4(s6, b0, b1, b2, b3, c6);
                d6 = step4(s6, e0, e1, e2, e3, d6);
                let s7 = shared7(rows);
                c7 = step4(s7, b0, b1, b2, b3, c7);
                d7 = step4(s7, e0, e1, e2, e3, d7);
                let s8 = shared8(rows);
                c8 = step4(s8, b0, b1, b2, b3, c8);
                d8 = step4(s8, e0, e1, e2, e3, d8);
                let s9 = shared9(rows);
                c9 = step4(s9, b0, b1, b2, b3, c9);
                d9 = step4(s9, e0, e1, e2, e3, d9);
                let s10 = shared10(rows);
                c10 = step4(s10, b0, b1, b2, b3, c10);
                d10 = step4(s10, e0, e1, e2, e3, d10);
                let s11 = shared11(rows);
                c11 = step4(s11, b0, b1, b2, b3, c11);
                d11 = step4(s11, e0, e1, e2, e3, d11);
                let s12 = shared12(rows);
                c12 = step4(s12, b0, b1, b2, b3, c12);
                d12 = step4(s12, e0, e1, e2, e3, d12);
                let s13 = shared13(rows);
                c13 = step4(s13, b0, b1, b2, b3, c13);
                d13 = step4(s13, e0, e1, e2, e3, d13);
                let s14 = shared14(rows);
                c14 = step4(s14, b0, b1, b2, b3, c14);
                d14 = step4(s14, e0, e1, e2, e3, d14);
                let s15 = shared15(rows);
                c15 = step4(s15, b0, b1, b2, b3, c15);
                d15 = step4(s15, e0, e1, e2, e3, d15);
            }
        }
    }
    // One store for all rows and both halves, the accumulators moving up behind it: a store per row doubles the compile
    // time. That there are two halves is hidden, or compilers would write the store out twice.
    let halves = 1u + min(p.m, 1u);
    let row0 = tile_m * 16u;
    let bias_at = p.groups * p.tiles_m * p.weight_taps * kc4 * 16u + (group * p.tiles_m + tile_m) * 16u;
    let dst_plane = p.y.dst * p.x.dst;
    let near_to = result_at(near, group);
    let far_to = result_at(far, group);
    let near_stored = own < vec4(count);
    let far_stored = own + 32u < vec4(count);
    for (var row = 0u; row < min(16u, p.m - row0); row += 1u) {
        let bias = a[bias_at + row].x;
        for (var half = 0u; half < halves; half += 1u) {
            let second = half == 1u;
            let to = select(near_to, far_to, second) + (row0 + row) * dst_plane;
            store(to, select(near_stored, far_stored, second), select(c0, d0, second) + bias);
        }
        c0 = c1; c1 = c2; c2 = c3; c3 = c4; c4 = c5;
        c5 = c6; c6 = c7; c7 = c8; c8 = c9; c9 = c10;
        c10 = c11; c11 = c12; c12 = c13; c13 = c14; c14 = c15;
        d0 = d1; d1 = d2; d2 = d3; d3 = d4; d4 = d5;
        d5 = d6; d6 = d7; d7 = d8; d8 = d9; d9 = d10;
        d10 = d11; d11 = d12; d12 = d13; d13 = d14; d14 = d15;
    }
}
