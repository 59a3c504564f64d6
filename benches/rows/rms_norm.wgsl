// x, γ -> y, statistics
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read_write> statistics: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = row.x * p.cols;
    var squares = 0.0;
    for (var c = lane; c < p.cols; c += 256u) {
        squares += x[start + c] * x[start + c];
    }
    let deviation = 1.0 / sqrt(tree_sum(lane, squares) / f32(p.cols) + p.eps);
    for (var c = lane; c < p.cols; c += 256u) {
        y[start + c] = gamma[c] * x[start + c] * deviation;
    }
    if (lane == 0u) {
        statistics[row.x] = deviation;
    }
}
