// Rows of a table, and with SUMS the gradient of the table.
#import common/grid
#import common/elem
#if SUMS
// embedding_sums: table[id] += Σ dy over the places of id, in their order; for the pairs start .. end
// sorted [..] of (id, place), dy [tokens, cols] -> table [rows, cols], or some of its elements, in place
// grid: one thread per pair and Elem, folded; only those at the head of equal ids work      overrides: none
struct Params {
    threads_x: u32,
    cols: u32, // in Elems
    start: u32,
    end: u32,
    first: u32, // of the elements of the table that are in the result; in Elems, as their number
    len: u32,
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
    let at = key * p.cols + c - p.first; // large before the first
    if (at >= p.len || (row > 0u && sorted[first - 1u].x == key)) {
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
    table[at] = to_memory(from_memory(table[at]) + (sum + block));
}
#else
#if F16 || BF16
#import common/half
#if VEC4
// A table in 16 bits, two elements to a word, read as vec4.
@group(0) @binding(1) var<storage, read_write> table: array<vec2<u32>>;
fn table_at(i: u32) -> vec4<f32> { return bitcast<vec4<f32>>(widened(table[i])); }
#else
// A table in 16 bits, two elements to a word.
@group(0) @binding(1) var<storage, read_write> table: array<u32>;
fn table_at(i: u32) -> f32 {
    return bitcast<f32>(from_half(vec4((table[i / 2u] >> (i % 2u * 16u)) & 0xffffu)).x);
}
#endif
#else
// A table in 32 bits.
@group(0) @binding(1) var<storage, read_write> table: array<InMemory>;
fn table_at(i: u32) -> Elem { return from_memory(table[i]); }
#endif

// embedding: y = table[id], the last row for an id out of range
// table [rows, cols], ids [n / cols] u32 -> y [n / cols, cols]
// grid: one thread per Elem, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32, // in Elems, as cols
    cols: u32,
    rows: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<InMemory>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.n) {
        let token = i / p.cols;
        y[i] = to_memory(table_at(min(ids[token], p.rows - 1u) * p.cols + i - token * p.cols));
    }
}
#endif
