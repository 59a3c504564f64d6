// sort_count: how many pairs of each block have each digit
// pairs [n] -> counts [blocks, digits]
// grid: one thread per block, folded      overrides: none
@group(0) @binding(1) var<storage, read_write> pairs: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> counts: array<u32>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = thread_number(id, p.threads_x);
    if (block >= p.blocks) {
        return;
    }
    let own = block * p.digits;
    for (var digit = 0u; digit < p.digits; digit++) {
        counts[own + digit] = 0u;
    }
    for (var i = block * p.block; i < min(block * p.block + p.block, p.n); i++) {
        counts[own + digit_of(pairs[i].x)] += 1u;
    }
}
