// cross_entropy: lse = (max, ln Σ e^(x - max)), loss = max - x[label] + ln Σ e^(x - max), 0 where the label is IGNORE (2^32 - 1)
// x [rows, cols], labels [rows] u32 -> loss [rows], lse [rows, 2]
// grid: one thread per row, folded      overrides: none
// Rows of up to a million columns: lavapipe ends a thread's loops after 65,535 turns without a word.
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<InMemory>;
@group(0) @binding(2) var<storage, read_write> labels: array<u32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<vec2<f32>>;

fn x_at(i: u32) -> Elem {
    return from_memory(x[i]);
}

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    // A row may begin and end within four elements that it shares with its neighbours.
    let start = row * p.cols;
    let end = start + p.cols;
    let order = vec4(0u, 1u, 2u, 3u);
    var q = start / 4u;
    let last = (end - 1u) / 4u;
    var at = 4u * q + order;
    var seen = see(Seen(LOWEST, vec4<f32>()), x_at(q), (at >= vec4(start)) & (at < vec4(end)));
    q++;
    for (; q + 4u <= last; q += 4u) {
        seen = see16(seen, x_at(q), x_at(q + 1u), x_at(q + 2u), x_at(q + 3u));
    }
    for (; q <= last; q++) {
        at = 4u * q + order;
        seen = see(seen, x_at(q), at < vec4(end));
    }
    let rest = log1((seen.sums.x + seen.sums.y) + (seen.sums.z + seen.sums.w));
    lse[row] = vec2(seen.top, rest);
    let label = labels[row];
    // The host refuses labels out of range; the bound keeps a stray one inside the row.
    let place = start + min(label, p.cols - 1u);
    loss[row] = select(seen.top - x_at(place / 4u)[place % 4u] + rest, 0.0, label == 0xffffffffu);
}
