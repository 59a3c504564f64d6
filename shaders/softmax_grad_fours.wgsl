// softmax_grad_fours: the gradient of softmax for rows whose length is a multiple of four, dx = s (dy - Σ dy s), or
// with LOG dx = dy - e^s Σ dy; s is what softmax returned
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
@group(0) @binding(3) var<storage, read_write> s: array<vec4<f32>>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    let start = row * (p.cols / 4u);
    let end = start + p.cols / 4u;
    var sums = vec4<f32>();
    for (var i = start; i < end; i++) {
        var term = x_at(i);
        if (!LOG) {
            term *= s[i];
        }
        sums += term;
    }
    let total = (sums.x + sums.y) + (sums.z + sums.w);
    for (var i = start; i < end; i++) {
        let dy = x_at(i);
        y[i] = select(s[i] * (dy - total), dy - exp(s[i]) * total, vec4(LOG));
    }
}
