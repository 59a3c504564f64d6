// sort_bases: where the pairs of each digit begin
// totals [digits] -> bases [digits]
// grid: one thread per digit, folded      overrides: none
@group(0) @binding(1) var<storage, read_write> totals: array<u32>;
@group(0) @binding(2) var<storage, read_write> bases: array<u32>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let digit = thread_number(id, p.threads_x);
    if (digit >= p.digits) {
        return;
    }
    var before = 0u;
    for (var other = 0u; other < digit; other++) {
        before += totals[other];
    }
    bases[digit] = before;
}
