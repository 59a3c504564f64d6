// Gradient of softmax of rows.
#import common/grid
#import common/elem
#import common/operand
#import common/nan
#if WORKGROUP
#import common/jobs
// softmax_grad_wg: dx = s (dy - Σ dy s) over each row, or with LOG dx = dy - e^s Σ dy; for GPUs
// dy as x [rows, cols], s [rows, cols] -> dx as y [rows, cols], or in place of dy
// grid: one workgroup per row, folded: row = wg.y * groups_x + wg.x      overrides: LOG
override LOG: bool = false;
struct Params {
    groups_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> s: array<f32>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wg.y * p.groups_x + wg.x;
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let end = start + p.cols;
    var part = 0.0;
    for (var i = start + lane; i < end; i += GROUP) {
        part += select(x_at(i) * s[i], x_at(i), LOG);
    }
    let sum = group_sum(lane, part);
    for (var i = start + lane; i < end; i += GROUP) {
        let dy = x_at(i);
        set_y(i, select(s[i] * (dy - sum), dy - exp1(s[i]) * sum, LOG));
    }
}
#else
// softmax_grad: dx = s (dy - Σ dy s) over each row, or with LOG dx = dy - e^s Σ dy; s is what softmax returned
// dy as x [rows, cols], s [rows, cols] -> dx as y [rows, cols], or in place of dy
// grid: one thread per row, folded      overrides: LOG
// Rows of up to 130,000 columns: lavapipe ends a thread's loops after 65,535 iterations without an error.
override LOG: bool = false;
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> s: array<f32>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let end = start + p.cols;
    let order = vec4(0u, 1u, 2u, 3u);
    var sums = vec4<f32>();
    for (var i = start; i < end; i += 4u) {
        // The last iteration repeats the last column where it has fewer than four, and leaves the repeats out of the sum.
        let at = min(order + i, vec4(end - 1u));
        var term = vec4(x_at(at.x), x_at(at.y), x_at(at.z), x_at(at.w));
        if (!LOG) {
            term *= vec4(s[at.x], s[at.y], s[at.z], s[at.w]);
        }
        sums += select(vec4<f32>(), term, at == order + i);
    }
    let total = (sums.x + sums.y) + (sums.z + sums.w);
    for (var i = start; i < end; i += 4u) {
        let at = min(order + i, vec4(end - 1u));
        let dy = vec4(x_at(at.x), x_at(at.y), x_at(at.z), x_at(at.w));
        let t = vec4(s[at.x], s[at.y], s[at.z], s[at.w]);
        let w = select(t * (dy - total), dy - exp4(t) * total, vec4(LOG));
        set_y(at.x, w.x);
        set_y(at.y, w.y);
        set_y(at.z, w.z);
        set_y(at.w, w.w);
    }
}
#endif
