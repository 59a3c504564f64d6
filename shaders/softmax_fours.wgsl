// softmax_fours: softmax of rows whose length is a multiple of four, y = e^(x - max) / Σ e^(x - max), or with LOG
// its logarithm x - max - ln Σ e^(x - max)
// x [rows, cols] -> y [rows, cols], or in place
// grid: one thread per row, folded      overrides: LOG
// Rows of up to 400,000 columns: lavapipe ends a thread's loops after 65,535 turns without a word.
override LOG: bool = false;
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;

fn result(v: vec4<f32>, scale: f32, rest: f32) -> vec4<f32> {
    if (LOG) {
        return v - rest;
    }
    return exp4(v) * scale;
}

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    let start = row * (p.cols / 4u);
    let end = start + p.cols / 4u;
    var seen = Seen(LOWEST, vec4<f32>());
    var i = start;
    for (; i + 4u <= end; i += 4u) {
        seen = see16(seen, x_at(i), x_at(i + 1u), x_at(i + 2u), x_at(i + 3u));
    }
    for (; i < end; i++) {
        seen = see(seen, x_at(i), vec4(true));
    }
    let total = (seen.sums.x + seen.sums.y) + (seen.sums.z + seen.sums.w);
    let rest = log1(total);
    let scale = 1.0 / total;
    // In two steps: beside a large maximum the logarithm would lose its digits.
    i = start;
    for (; i + 4u <= end; i += 4u) {
        let v0 = x_at(i) - seen.top;
        let v1 = x_at(i + 1u) - seen.top;
        let v2 = x_at(i + 2u) - seen.top;
        let v3 = x_at(i + 3u) - seen.top;
        set_y(i, result(v0, scale, rest));
        set_y(i + 1u, result(v1, scale, rest));
        set_y(i + 2u, result(v2, scale, rest));
        set_y(i + 3u, result(v3, scale, rest));
    }
    for (; i < end; i++) {
        set_y(i, result(x_at(i) - seen.top, scale, rest));
    }
}
