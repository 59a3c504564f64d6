// batch_stats: Σ (x - first) and Σ (x - first)² of a part of a channel, `first` being the channel's first element: near
// enough to the mean that the squares do not cancel
// x [n, c, h, w] -> parts [2, parts, c]
// grid: one thread (CPU) or workgroup (GPU) per channel and part, folded      overrides: none
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> parts: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let job = job_of(wg.y * p.grid_x + wg.x, thread);
    let lane = lane_of(thread);
    if (job >= p.parts * p.channels) {
        return;
    }
    let part = job / p.channels;
    let channel = job - part * p.channels;
    let first = x[channel * p.plane];
    let start = part * p.part_len + lane;
    let end = min(part * p.part_len + p.part_len, p.count);
    var at = start / p.plane * p.channels * p.plane + channel * p.plane;
    var pixel = start % p.plane;
    var sum = 0.0;
    var squares = 0.0;
    for (var i = start; i < end; i += GROUP) {
        let v = x[at + pixel] - first;
        sum += v;
        squares = fma(v, v, squares);
        pixel += GROUP;
        // Dividing is dear where one step is enough.
        let over = select(pixel / p.plane, select(0u, 1u, pixel >= p.plane), GROUP == 1u);
        pixel -= over * p.plane;
        at += over * p.channels * p.plane;
    }
    sum = group_sum(lane, sum);
    squares = group_sum(lane, squares);
    if (lane == 0u) {
        parts[job] = sum;
        parts[p.parts * p.channels + job] = squares;
    }
}
