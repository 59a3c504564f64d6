// adam8_wg: as adam8.wgsl
// grid: one workgroup per block of 256 elements, four to a thread, folded      overrides: none
override TAIL: u32 = 4u; // elements of the last four
var<workgroup> found: array<vec2<f32>, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let block = group.y * (p.threads_x / 64u) + group.x;
    let i = block * BLOCK_QUADS + lane;
    let mine = i < p.quads && scalars[7] == 0u;
    var after = Moments(vec4(0.0), vec4(0.0));
    if (mine) {
        let all = moments(i);
        let in = (vec4(0u, 1u, 2u, 3u) < vec4(TAIL)) | vec4(i + 1u < p.quads);
        after = Moments(select(vec4(0.0), all.first, in), select(vec4(0.0), all.second, in));
    }
    found[lane] = vec2(largest(after.first), largest(after.second));
    workgroupBarrier();
    for (var half = 32u; half > 0u; half >>= 1u) {
        if (lane < half) {
            found[lane] = larger(found[lane], found[lane + half]);
        }
        workgroupBarrier();
    }
    if (mine) {
        store(i, after, found[0]);
        if (lane == 0u) {
            most[block] = found[0];
        }
    }
}
