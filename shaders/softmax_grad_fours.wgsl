// softmax_grad_fours: the gradient of softmax for rows whose length is a multiple of four, dx = s (dy - Σ dy s), or
// with LOG dx = dy - e^s Σ dy; s is what softmax returned
// dy as x [rows, cols], s [rows, cols] -> dx as y [rows, cols], or in place of dy
// grid: one thread per row, folded      overrides: LOG
// Rows of up to 260,000 columns: lavapipe ends a thread's loops after 65,535 turns without a word.
override LOG: bool = false;
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> s: array<InMemory>;

fn term(i: u32) -> vec4<f32> {
    if (LOG) {
        return x_at(i);
    }
    return x_at(i) * from_memory(s[i]);
}

fn result(i: u32, total: f32) -> vec4<f32> {
    let dy = x_at(i);
    let own = from_memory(s[i]);
    if (LOG) {
        return dy - exp4(own) * total;
    }
    return own * (dy - total);
}

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    let start = row * (p.cols / 4u);
    let end = start + p.cols / 4u;
    var sums = vec4<f32>();
    var i = start;
    for (; i + 2u <= end; i += 2u) {
        sums += term(i) + term(i + 1u);
    }
    for (; i < end; i++) {
        sums += term(i);
    }
    let total = (sums.x + sums.y) + (sums.z + sums.w);
    i = start;
    for (; i + 2u <= end; i += 2u) {
        let g0 = result(i, total);
        let g1 = result(i + 1u, total);
        set_y(i, g0);
        set_y(i + 1u, g1);
    }
    for (; i < end; i++) {
        set_y(i, result(i, total));
    }
}
