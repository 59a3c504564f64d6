// AdamW with moments in eight bits, by threads or by workgroups.
#import common/grid
#import optimizer/weight
#import optimizer/dynamic_8bit
#if WORKGROUP
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
#else
// adam8: AdamW with moments in eight bits; formulas in adam.wgsl, the map in dynamic_8bit.wgsl
// w [n], g [n], scalars [9], m [n/4] and v [n/4] (four codes a word), most [n/256] -> all but g and scalars
// grid: one thread per block of 256 elements, folded (CPU adapters)      overrides: none
override TAIL: u32 = 4u; // elements of the last four

fn within(i: u32, after: Moments) -> Moments {
    let in = (vec4(0u, 1u, 2u, 3u) < vec4(TAIL)) | vec4(i + 1u < p.quads);
    return Moments(select(vec4(0.0), after.first, in), select(vec4(0.0), after.second, in));
}

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = thread_number(id, p.threads_x);
    let start = block * BLOCK_QUADS;
    if (start >= p.quads || scalars[7] != 0u) {
        return;
    }
    let end = min(start + BLOCK_QUADS, p.quads);
    var all = vec2(0.0);
    for (var i = start; i < end; i++) {
        let after = within(i, moments(i));
        all = larger(all, vec2(largest(after.first), largest(after.second)));
    }
    for (var i = start; i < end; i++) {
        // Computed again: the same bits, and nothing to keep.
        store(i, within(i, moments(i)), all);
    }
    most[block] = all;
}
#endif
