// cross_entropy: lse = (max, ln Σ e^(x - max)), loss = max - x[label] + ln Σ e^(x - max), 0 where the label is IGNORE (2^32 - 1)
// x [rows, cols], labels [rows] u32 -> loss [rows], lse [rows, 2]
// grid: one thread per row, folded      overrides: none
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> labels: array<u32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<vec2<f32>>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let fours = p.cols / 4u;
    // Four columns a turn: lavapipe ends a thread's loops after 65,535 turns without a word.
    var highest = vec4(x[start]);
    for (var q = 0u; q < fours; q++) {
        let at = start + 4u * q;
        highest = max(highest, vec4(x[at], x[at + 1u], x[at + 2u], x[at + 3u]));
    }
    for (var c = 4u * fours; c < p.cols; c++) {
        highest.x = max(highest.x, x[start + c]);
    }
    let top = max(max(highest.x, highest.y), max(highest.z, highest.w));
    var sum = vec4(0.0);
    for (var q = 0u; q < fours; q++) {
        let at = start + 4u * q;
        sum += exp(vec4(x[at], x[at + 1u], x[at + 2u], x[at + 3u]) - top);
    }
    for (var c = 4u * fours; c < p.cols; c++) {
        sum.x += exp(x[start + c] - top);
    }
    let rest = log(sum.x + sum.y + sum.z + sum.w);
    lse[row] = vec2(top, rest);
    let label = labels[row];
    // The host refuses labels out of range; the bound keeps a stray one inside the row.
    let picked = x[start + min(label, p.cols - 1u)];
    loss[row] = select(top - picked + rest, 0.0, label == 0xffffffffu);
}
