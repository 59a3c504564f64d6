// rotary: in the first heads of each position, elements c and c + half become a cos - b sin and b cos + a sin
// x [batch positions all_heads, 2, half], table [positions, 2, half] of cosines and sines -> y like x, or in place
// grid: one thread per pair of Elems of the heads that change, folded      overrides: none
struct Params {
    threads_x: u32,
    jobs: u32,
    half: u32, // in Elems
    heads: u32, // that are turned
    done_heads: u32, // that are written: all, or in place those that are turned
    all_heads: u32,
    positions: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> table: array<InMemory>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let job = thread_number(id, p.threads_x);
    if (job >= p.jobs) {
        return;
    }
    let row = job / p.half;
    let c = job - row * p.half;
    let place = row / p.done_heads;
    let head = row - place * p.done_heads;
    let at = (place * p.all_heads + head) * 2u * p.half + c;
    let a = x_at(at);
    let b = x_at(at + p.half);
    let angle = place % p.positions * 2u * p.half + c;
    let cosine = from_memory(table[angle]);
    let sine = from_memory(table[angle + p.half]);
    set_y(at, select(a, a * cosine - b * sine, head < p.heads));
    set_y(at + p.half, select(b, b * cosine + a * sine, head < p.heads));
}
