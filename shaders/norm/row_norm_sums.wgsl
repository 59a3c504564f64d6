// Gradients of layer norm and RMS norm by their weights: sums of parts, then with END of all parts.
#import common/grid
#import common/elem
#if END
#if LAYER
// Layer norm has a shift.
const CENTRED = true;
@group(0) @binding(3) var<storage, read_write> dbeta: array<InMemory>;
fn keep_beta(column: u32, sum: Elem) { dbeta[column] = to_memory(sum); }
#else
// RMS norm has no shift.
const CENTRED = false;
fn keep_beta(column: u32, sum: Elem) {}
#endif

// row_norm_sums_end: the sums of all parts, in a fixed order
// parts [parts, 2, cols] -> dgamma [cols], and of layer norm dbeta [cols]
// grid: one thread per column, folded; with WORKGROUP one workgroup, folded: column = wg.y * threads_x + wg.x
// overrides: none
struct Params {
    threads_x: u32,
    cols: u32, // in Elems
    parts: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> parts: array<InMemory>;
@group(0) @binding(2) var<storage, read_write> dgamma: array<InMemory>;
#if WORKGROUP
#import common/jobs
// Each lane sums some of a column's parts.
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let c = job_of(wg.y * p.threads_x + wg.x, thread);
    if (c >= p.cols) {
        return;
    }
    var products = Elem();
    var sums = Elem();
    for (var part = lane_of(thread); part < p.parts; part += GROUP) {
        products += from_memory(parts[part * 2u * p.cols + c]);
        if (CENTRED) {
            sums += from_memory(parts[(part * 2u + 1u) * p.cols + c]);
        }
    }
    let product = group_sum(thread, products);
    let sum = group_sum(thread, sums);
    if (thread == 0u) {
        dgamma[c] = to_memory(product);
        keep_beta(c, sum);
    }
}
#else
@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = thread_number(id, p.threads_x);
    if (c >= p.cols) {
        return;
    }
    var products = Elem();
    var sums = Elem();
    for (var part = 0u; part < p.parts; part++) {
        products += from_memory(parts[part * 2u * p.cols + c]);
        if (CENTRED) {
            sums += from_memory(parts[(part * 2u + 1u) * p.cols + c]);
        }
    }
    dgamma[c] = to_memory(products);
    keep_beta(c, sums);
}
#endif
#else
#import common/held
#import norm/row_norm_kind
// row_norm_sums: Σ dy x̂ and (layer norm) Σ dy of each column over a part of the rows, x̂ = (x - mean) deviation
// x as held [rows, cols], dy [rows, cols], statistics [rows, 2 or 1] -> parts [parts, 2, cols]
// grid: one thread per column and part, folded      overrides: none
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32, // in Elems
    parts: u32,
    part_len: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read_write> dy: array<InMemory>;
@group(0) @binding(3) var<storage, read_write> parts: array<InMemory>;

fn normal_at(i: u32, row: u32) -> Elem {
    return centred(held_at(i), mean_of(row)) * deviation_of(row);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let job = thread_number(id, p.threads_x);
    if (job >= p.parts * p.cols) {
        return;
    }
    let part = job / p.cols;
    let c = job - part * p.cols;
    // In blocks of 64 rows: one long sum of small terms would lose their digits.
    var products = Elem();
    var sums = Elem();
    let end = min(part * p.part_len + p.part_len, p.rows);
    for (var first = part * p.part_len; first < end; first += 64u) {
        var block_products = Elem();
        var block_sums = Elem();
        let last = min(first + 64u, end);
        var row = first;
        for (; row + 2u <= last; row += 2u) {
            let i = row * p.cols + c;
            let g0 = from_memory(dy[i]);
            let g1 = from_memory(dy[i + p.cols]);
            block_products += g0 * normal_at(i, row) + g1 * normal_at(i + p.cols, row + 1u);
            block_sums += g0 + g1;
        }
        if (row < last) {
            let g = from_memory(dy[row * p.cols + c]);
            block_products += g * normal_at(row * p.cols + c, row);
            block_sums += g;
        }
        products += block_products;
        sums += block_sums;
    }
    parts[part * 2u * p.cols + c] = to_memory(products);
    if (CENTRED) {
        parts[(part * 2u + 1u) * p.cols + c] = to_memory(sums);
    }
}
#endif
