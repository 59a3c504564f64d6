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
