// sort_scan: for each digit, how many pairs of the blocks before each block have it, and how many of all
// counts [blocks, digits] in place -> totals [digits]
// grid: one thread per digit, folded      overrides: none
@group(0) @binding(1) var<storage, read_write> counts: array<u32>;
@group(0) @binding(2) var<storage, read_write> totals: array<u32>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let digit = thread_number(id, p.threads_x);
    if (digit >= p.digits) {
        return;
    }
    var before = 0u;
    for (var block = 0u; block < p.blocks; block++) {
        let own = counts[block * p.digits + digit];
        counts[block * p.digits + digit] = before;
        before += own;
    }
    totals[digit] = before;
}
