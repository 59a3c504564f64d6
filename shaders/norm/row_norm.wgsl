// Layer norm and RMS norm.
#import common/elem
#import common/held
#import common/jobs
#import common/nan
#import norm/row_norm_kind
#if LAYER
// What layer norm adds and keeps.
@group(0) @binding(5) var<storage, read_write> beta: array<InMemory>;
fn beta_at(column: u32) -> Elem { return from_memory(beta[column]); }
fn keep(row: u32, mean: f32, deviation: f32) { statistics[row] = vec2(mean, deviation); }
#else
// What RMS norm keeps.
fn beta_at(column: u32) -> Elem { return Elem(); }
fn keep(row: u32, mean: f32, deviation: f32) { statistics[row] = deviation; }
#endif

// row_norm: y = gamma (x - mean) deviation + beta over each row, mean and 1/deviation being the row's own
// x [rows, cols], gamma [cols], beta [cols] (layer norm) -> y [rows, cols], statistics [rows, 2 or 1]
// grid: one thread (CPU) or workgroup (GPU) per row, folded      overrides: none
struct Params {
    grid_x: u32,
    rows: u32,
    cols: u32, // in Elems
    eps: f32,
    share: f32, // 1 / elements of a row
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read_write> gamma: array<InMemory>;
@group(0) @binding(3) var<storage, read_write> y: array<InMemory>;

// Sums are summed up in blocks: one long sum would lose the digits of its terms.
const BLOCK = 64u * GROUP;

fn block_end(block: u32) -> u32 { return block + min(BLOCK, p.cols - block); }

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = job_of(wg.y * p.grid_x + wg.x, thread);
    let lane = lane_of(thread);
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    var mean = 0.0;
    if (CENTRED) {
        // Counted from the first element: a row far from zero keeps its digits.
        let first = one_of(held_at(start));
        var sums = Elem();
        for (var block = lane; block < p.cols; block += BLOCK) {
            var block_sums = Elem();
            for (var c = block; c < block_end(block); c += GROUP) {
                block_sums += held_at(start + c) - first;
            }
            sums += block_sums;
        }
        mean = first + group_sum(lane, total(sums)) * p.share;
    }
    // Of what is left after the mean: squares of the elements themselves would cancel.
    var squares = Elem();
    var rests = Elem();
    for (var block = lane; block < p.cols; block += BLOCK) {
        var block_squares = Elem();
        var block_rests = Elem();
        for (var c = block; c < block_end(block); c += GROUP) {
            let v = centred(held_at(start + c), mean);
            block_squares += v * v;
            block_rests += v;
        }
        squares += block_squares;
        rests += block_rests;
    }
    var variance = group_sum(lane, total(squares)) * p.share;
    if (CENTRED) {
        // A first element far from the others left the mean inexact: by how much, the second reading knows.
        let rest = group_sum(lane, total(rests)) * p.share;
        mean += rest;
        variance -= rest * rest;
    }
    let deviation = 1.0 / sqrt(or_nan1(variance, max(variance, 0.0)) + p.eps);
    for (var c = lane; c < p.cols; c += GROUP) {
        let standard = centred(held_at(start + c), mean) * deviation;
        y[start + c] = to_memory(from_memory(gamma[c]) * standard + beta_at(c));
    }
    if (lane == 0u) {
        keep(row, mean, deviation);
    }
}
