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

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wg.y * p.groups_x + wg.x;
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let end = start + p.cols;
    var highest = x_at(start);
    for (var i = start + lane; i < end; i += GROUP) {
        highest = max(highest, x_at(i));
    }
    let top = group_max(lane, highest);
    var sum = 0.0;
    for (var i = start + lane; i < end; i += GROUP) {
        sum += exp1(x_at(i) - top);
    }
    let total = group_sum(lane, sum);
    // Taken off after the maximum: added to a large one, the logarithm would lose its digits.
    let rest = log1(total);
    let scale = 1.0 / total;
    for (var i = start + lane; i < end; i += GROUP) {
        let v = x_at(i) - top;
        set_y(i, select(exp1(v) * scale, v - rest, LOG));
    }
}
