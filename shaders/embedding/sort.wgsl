// A stable radix sort of pairs: START makes them, then for each digit COUNT, SCAN, BASES and MOVE.
#import common/grid
#if START
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
#else
// One pass of a stable radix sort: pairs are put in order of one digit of their first number. They are cut into blocks,
// a thread for each; `counts` [blocks, digits] says how many of a block have each digit, then where the next goes.
struct Params {
    threads_x: u32,
    n: u32,
    blocks: u32,
    block: u32, // pairs in each
    digits: u32,
    shift: u32,
}
@group(0) @binding(0) var<uniform> p: Params;

fn digit_of(key: u32) -> u32 { return (key >> p.shift) & (p.digits - 1u); }

#if COUNT
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
#elif SCAN
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
#elif BASES
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
#else
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
#endif
#endif
