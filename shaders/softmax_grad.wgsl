// softmax_grad: dx = s (dy - Σ dy s) over each row, or with LOG dx = dy - e^s Σ dy; s is what softmax returned
// dy as x [rows, cols], s [rows, cols] -> dx as y [rows, cols], or in place of dy
// grid: one thread per row, folded      overrides: LOG
// Rows of up to 130,000 columns: lavapipe ends a thread's loops after 65,535 turns without a word.
override LOG: bool = false;
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> s: array<f32>;

fn slope(i: u32, sum: f32) -> f32 {
    let dy = x_at(i);
    return select(s[i] * (dy - sum), dy - exp(s[i]) * sum, LOG);
}

fn term(i: u32) -> f32 {
    let dy = x_at(i);
    return select(dy * s[i], dy, LOG);
}

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let end = start + p.cols;
    let fours = start + p.cols / 4u * 4u;
    var parts = vec4(0.0);
    for (var i = start; i < fours; i += 4u) {
        parts += vec4(term(i), term(i + 1u), term(i + 2u), term(i + 3u));
    }
    for (var i = fours; i < end; i++) {
        parts.x += term(i);
    }
    let sum = parts.x + parts.y + parts.z + parts.w;
    for (var i = start; i < fours; i += 4u) {
        y[i] = slope(i, sum);
        y[i + 1u] = slope(i + 1u, sum);
        y[i + 2u] = slope(i + 2u, sum);
        y[i + 3u] = slope(i + 3u, sum);
    }
    for (var i = fours; i < end; i++) {
        y[i] = slope(i, sum);
    }
}
