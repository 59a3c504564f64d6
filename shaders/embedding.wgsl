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
