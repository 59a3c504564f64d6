// sort_move: every pair to its place; those of a digit stay in their order
// pairs [n], counts [blocks, digits] (used up), bases [digits] -> sorted [n]
// grid: one thread per block, folded      overrides: none
@group(0) @binding(1) var<storage, read_write> pairs: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> counts: array<u32>;
@group(0) @binding(3) var<storage, read_write> bases: array<u32>;
@group(0) @binding(4) var<storage, read_write> sorted: array<vec2<u32>>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = thread_number(id, p.threads_x);
    if (block >= p.blocks) {
        return;
    }
    let own = block * p.digits;
    for (var i = block * p.block; i < min(block * p.block + p.block, p.n); i++) {
        let pair = pairs[i];
        let digit = digit_of(pair.x);
        let place = counts[own + digit];
        counts[own + digit] = place + 1u;
        sorted[bases[digit] + place] = pair;
    }
}
