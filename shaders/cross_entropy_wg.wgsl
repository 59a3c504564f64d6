// cross_entropy_wg: lse = (max, ln Σ e^(x - max)), loss = max - x[label] + ln Σ e^(x - max), 0 where the label is IGNORE (2^32 - 1); for GPUs
// x [rows, cols], labels [rows] u32 -> loss [rows], lse [rows, 2]
// grid: one workgroup per row, folded: row = wg.y * groups_x + wg.x      overrides: none
struct Params {
    groups_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> labels: array<u32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<vec2<f32>>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wg.y * p.groups_x + wg.x;
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let end = start + p.cols;
    var highest = x[start];
    for (var i = start + lane; i < end; i += GROUP) {
        highest = max(highest, x[i]);
    }
    let top = group_max(lane, highest);
    var sum = 0.0;
    for (var i = start + lane; i < end; i += GROUP) {
        sum += exp1(x[i] - top);
    }
    let rest = log1(group_sum(lane, sum));
    if (lane == 0u) {
        let label = labels[row];
        lse[row] = vec2(top, rest);
        // The host refuses labels out of range; the bound keeps a stray one inside the row.
        loss[row] = select(top - x[start + min(label, p.cols - 1u)] + rest, 0.0, label == 0xffffffffu);
    }
}
