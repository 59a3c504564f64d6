// row_norm_grad: dx = deviation (g - mean of g - x̂ mean of g x̂), g = gamma dy, x̂ = (x - mean) deviation; the mean of g for
// layer norm alone
// dy as x [rows, cols], input [rows, cols], statistics [rows, 2 or 1], gamma [cols] -> dx as y, or in place of dy
// grid: one thread (CPU) or workgroup (GPU) per row, folded      overrides: none
struct Params {
    grid_x: u32,
    rows: u32,
    cols: u32, // in Elems
    share: f32, // 1 / elements of a row
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> input: array<Elem>;
@group(0) @binding(5) var<storage, read_write> gamma: array<Elem>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = job_of(wg.y * p.grid_x + wg.x, thread);
    let lane = lane_of(thread);
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let mean = mean_of(row);
    let deviation = deviation_of(row);
    var sums = Elem();
    var products = Elem();
    for (var c = lane; c < p.cols; c += GROUP) {
        let g = x_at(start + c) * gamma[c];
        sums += g;
        products += g * ((input[start + c] - mean) * deviation);
    }
    var mean_g = 0.0;
    if (CENTRED) {
        mean_g = group_sum(lane, total(sums)) * p.share;
    }
    let slope = group_sum(lane, total(products)) * p.share;
    for (var c = lane; c < p.cols; c += GROUP) {
        let g = x_at(start + c) * gamma[c];
        let normal = (input[start + c] - mean) * deviation;
        y[start + c] = deviation * (g - mean_g - normal * slope);
    }
}
