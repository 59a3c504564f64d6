// embedding_sums: table[id] += Σ dy over the places of id, in their order; for the pairs start .. end
// sorted [..] of (id, place), dy [tokens, cols] -> table [rows, cols] in place
// grid: one thread per pair and Elem, folded; only those at the head of equal ids work      overrides: none
struct Params {
    threads_x: u32,
    cols: u32, // in Elems
    start: u32,
    end: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> sorted: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> dy: array<InMemory>;
@group(0) @binding(3) var<storage, read_write> table: array<InMemory>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let job = thread_number(id, p.threads_x);
    let row = job / p.cols;
    let c = job - row * p.cols;
    let first = p.start + row;
    if (first >= p.end) {
        return;
    }
    let key = sorted[first].x;
    if (row > 0u && sorted[first - 1u].x == key) {
        return;
    }
    // In blocks of 64: one long sum of small terms would lose their digits.
    var sum = Elem();
    var block = Elem();
    for (var i = first; i < p.end; i++) {
        let pair = sorted[i];
        if (pair.x != key) {
            break;
        }
        block += from_memory(dy[pair.y * p.cols + c]);
        if (((i - first) & 63u) == 63u) {
            sum += block;
            block = Elem();
        }
    }
    let at = key * p.cols + c;
    table[at] = to_memory(from_memory(table[at]) + (sum + block));
}
