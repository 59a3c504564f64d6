// softmax: y = e^(x - max) / Σ e^(x - max) over each row, or with LOG its logarithm x - max - ln Σ e^(x - max)
// x [rows, cols] -> y [rows, cols], or in place
// grid: one thread per row, folded      overrides: LOG
// Rows of up to 87,000 columns: lavapipe ends a thread's loops after 65,535 turns without a word.
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
    let fours = start + p.cols / 4u * 4u;
    var highest = vec4(x_at(start));
    for (var i = start; i < fours; i += 4u) {
        highest = max(highest, vec4(x_at(i), x_at(i + 1u), x_at(i + 2u), x_at(i + 3u)));
    }
    for (var i = fours; i < end; i++) {
        highest.x = max(highest.x, x_at(i));
    }
    let top = max(max(highest.x, highest.y), max(highest.z, highest.w));
    var sum = vec4(0.0);
    for (var i = start; i < fours; i += 4u) {
        sum += exp(vec4(x_at(i), x_at(i + 1u), x_at(i + 2u), x_at(i + 3u)) - top);
    }
    for (var i = fours; i < end; i++) {
        sum.x += exp(x_at(i) - top);
    }
    let total = sum.x + sum.y + sum.z + sum.w;
    let shift = select(top, top + log(total), LOG);
    let scale = 1.0 / total;
    for (var i = start; i < fours; i += 4u) {
        let v = vec4(x_at(i), x_at(i + 1u), x_at(i + 2u), x_at(i + 3u)) - shift;
        let w = select(exp(v) * scale, v, LOG);
        y[i] = w.x;
        y[i + 1u] = w.y;
        y[i + 2u] = w.z;
        y[i + 3u] = w.w;
    }
    for (var i = fours; i < end; i++) {
        let v = x_at(i) - shift;
        y[i] = select(exp(v) * scale, v, LOG);
    }
}
