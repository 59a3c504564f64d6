// sort_start: ids with their places, to be sorted by the ids; an id out of range is the last row's
// ids [n] u32 -> pairs [n] of (id, place)
// grid: one thread per id, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32,
    rows: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> pairs: array<vec2<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.n) {
        pairs[i] = vec2(min(ids[i], p.rows - 1u), i);
    }
}
