// AdamW with moments in codes of eight or four bits, by threads or by workgroups; formulas in adam.wgsl.
#import common/grid
#import optimizer/weight
#import optimizer/moment_codes
#if !CORRECTION
override TAIL: u32 = 4u; // elements of the last vec4
#endif

// The moments of a vec4 after this step, 0 past the tensor's end.
fn within(i: u32) -> Moments {
    if (i >= p.quads) {
        return Moments(vec4(0.0), vec4(0.0));
    }
    let after = moments(i);
    let in = (vec4(0u, 1u, 2u, 3u) < vec4(TAIL)) | vec4(i + 1u < p.quads);
    return Moments(select(vec4(0.0), after.first, in), select(vec4(0.0), after.second, in));
}
#if WORKGROUP
// adam8_wg, adam4_wg: as below
// grid: one workgroup per 64 words of codes, a word to a thread, folded      overrides: none
var<workgroup> found: array<vec2<f32>, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * (p.threads_x / 64u) + group.x) * 64u + lane;
    let mine = i * PER_WORD < p.quads && scalars[7] == 0u;
    var after: array<Moments, PER_WORD>;
    var own = vec2(0.0);
    if (mine) {
        for (var k = 0u; k < PER_WORD; k++) {
            after[k] = within(i * PER_WORD + k);
            own = larger(own, largest_of(after[k]));
        }
    }
    found[lane] = own;
    workgroupBarrier();
    let of_block = lane % BLOCK_WORDS;
    for (var half = BLOCK_WORDS / 2u; half > 0u; half >>= 1u) {
        if (of_block < half) {
            found[lane] = larger(found[lane], found[lane + half]);
        }
        workgroupBarrier();
    }
    if (mine) {
        let all = found[lane - of_block];
        var codes = vec2(0u);
        for (var k = 0u; k < PER_WORD; k++) {
            codes |= codes_of(after[k], all) << vec2(16u * k);
            update(i * PER_WORD + k, after[k]);
        }
        m[i] = codes.x;
        v[i] = codes.y;
        if (of_block == 0u) {
            most[i / BLOCK_WORDS] = all;
        }
    }
}
#else
// adam8, adam4: codes of eight bits, four a word, or of four bits, eight a word
// w [n], g [n], scalars [9], m and v [words], most [blocks, 2] -> all but g and scalars
// grid: one thread per block of elements with a scale, folded (CPU adapters)      overrides: none
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = thread_number(id, p.threads_x);
    let start = block * BLOCK_WORDS;
    let words = (p.quads + PER_WORD - 1u) / PER_WORD;
    if (start >= words || scalars[7] != 0u) {
        return;
    }
    let end = min(start + BLOCK_WORDS, words);
    var all = vec2(0.0);
    for (var i = start * PER_WORD; i < end * PER_WORD; i++) {
        all = larger(all, largest_of(within(i)));
    }
    for (var i = start; i < end; i++) {
        var codes = vec2(0u);
        for (var k = 0u; k < PER_WORD; k++) {
            // Computed again: the same bits, and nothing to keep.
            let after = within(i * PER_WORD + k);
            codes |= codes_of(after, all) << vec2(16u * k);
            update(i * PER_WORD + k, after);
        }
        m[i] = codes.x;
        v[i] = codes.y;
    }
    most[block] = all;
}
#endif
