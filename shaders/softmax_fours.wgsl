// softmax_fours: softmax of rows whose length is a multiple of four, y = e^(x - max) / Σ e^(x - max), or with LOG
// its logarithm x - max - ln Σ e^(x - max)
// x [rows, cols] -> y [rows, cols], or in place
// grid: one thread per row, folded      overrides: LOG
// Rows of up to 130,000 columns: lavapipe ends a thread's loops after 65,535 turns without a word.
override LOG: bool = false;
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;

// Below every finite x, so that a difference to it is never infinity minus infinity.
const LOWEST = -3.4028235e38;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    let start = row * (p.cols / 4u);
    let end = start + p.cols / 4u;
    // Maximum and sum in one reading: the sum so far is rescaled where the maximum grows.
    var top = LOWEST;
    var sums = vec4<f32>();
    for (var i = start; i < end; i++) {
        let v = x_at(i);
        let highest = max(top, max(max(v.x, v.y), max(v.z, v.w)));
        sums = sums * exp(top - highest) + exp(v - highest);
        top = highest;
    }
    let total = (sums.x + sums.y) + (sums.z + sums.w);
    let rest = log(total);
    let scale = 1.0 / total;
    for (var i = start; i < end; i++) {
        // In two steps: beside a large maximum the logarithm would lose its digits.
        let v = x_at(i) - top;
        y[i] = select(exp(v) * scale, v - rest, vec4(LOG));
    }
}
