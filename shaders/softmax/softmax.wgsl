// Softmax of rows, by threads or by workgroups.
#import common/grid
#import common/elem
#import common/operand
#import common/nan
// Below every finite x, so that a difference to it is never infinity minus infinity.
const LOWEST = -0x1.fffffep+127;
#if WORKGROUP
#import common/jobs
// softmax_wg: y = e^(x - max) / Σ e^(x - max) over each row, or with LOG its logarithm; for GPUs
// x [rows, cols] -> y [rows, cols], or in place
// grid: one workgroup per row, folded: row = wg.y * groups_x + wg.x      overrides: LOG
override LOG: bool = false;
struct Params {
    groups_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;

const order = vec4(0u, 1u, 2u, 3u) * GROUP;

// Those past the end repeat the last one of the row.
fn four_at(i: u32, end: u32) -> vec4<f32> {
    let at = min(order + i, vec4(end - 1u));
    return vec4(x_at(at.x), x_at(at.y), x_at(at.z), x_at(at.w));
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wg.y * p.groups_x + wg.x;
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let end = start + p.cols;
    // Maximum and sum in one reading: the sum so far is rescaled where the maximum grows.
    // Four elements at a time: one load in flight does not keep the memory busy.
    var own = LOWEST;
    var sums = vec4<f32>();
    for (var i = start + lane; i < end; i += 4u * GROUP) {
        let v = four_at(i, end);
        let highest = max(own, max(max(v.x, v.y), max(v.z, v.w)));
        sums = sums * exp(own - highest) + select(vec4<f32>(), exp4(v - highest), order + i < vec4(end));
        own = highest;
    }
    let top = group_max(lane, own);
    let total = group_sum(lane, ((sums.x + sums.y) + (sums.z + sums.w)) * exp1(own - top));
    // Taken off after the maximum: added to a large one, the logarithm would lose its digits.
    let rest = log1(total);
    let scale = 1.0 / total;
    for (var i = start + lane; i < end; i += 4u * GROUP) {
        let v = four_at(i, end) - top;
        let w = select(exp4(v) * scale, v - rest, vec4(LOG));
        set_y(i, w.x);
        if (i + GROUP < end) { set_y(i + GROUP, w.y); }
        if (i + 2u * GROUP < end) { set_y(i + 2u * GROUP, w.z); }
        if (i + 3u * GROUP < end) { set_y(i + 3u * GROUP, w.w); }
    }
}
#else
// softmax: y = e^(x - max) / Σ e^(x - max) over each row, or with LOG its logarithm x - max - ln Σ e^(x - max)
// x [rows, cols] -> y [rows, cols], or in place
// grid: one thread per row, folded      overrides: LOG
// Rows of up to 130,000 columns: lavapipe ends a thread's loops after 65,535 iterations without an error.
override LOG: bool = false;
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let end = start + p.cols;
    let order = vec4(0u, 1u, 2u, 3u);
    // Maximum and sum in one reading: the sum so far is rescaled where the maximum grows.
    var top = LOWEST;
    var sums = vec4<f32>();
    for (var i = start; i < end; i += 4u) {
        // The last iteration repeats the last column where it has fewer than four, and leaves the repeats out of the sum.
        let at = min(order + i, vec4(end - 1u));
        let v = vec4(x_at(at.x), x_at(at.y), x_at(at.z), x_at(at.w));
        let highest = max(top, max(max(v.x, v.y), max(v.z, v.w)));
        sums = sums * exp(top - highest) + select(vec4<f32>(), exp4(v - highest), at == order + i);
        top = highest;
    }
    let total = (sums.x + sums.y) + (sums.z + sums.w);
    // Taken off after the maximum: added to a large one, the logarithm would lose its digits.
    let rest = log1(total);
    let scale = 1.0 / total;
    for (var i = start; i < end; i += 4u) {
        let at = min(order + i, vec4(end - 1u));
        let v = vec4(x_at(at.x), x_at(at.y), x_at(at.z), x_at(at.w)) - top;
        let w = select(exp4(v) * scale, v - rest, vec4(LOG));
        set_y(at.x, w.x);
        set_y(at.y, w.y);
        set_y(at.z, w.z);
        set_y(at.w, w.w);
    }
}
#endif
