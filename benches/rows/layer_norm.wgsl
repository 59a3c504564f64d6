// x, γ, β -> y, statistics
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(3) var<storage, read_write> beta: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> statistics: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = row.x * p.cols;
    var sum = 0.0;
    for (var c = lane; c < p.cols; c += 256u) {
        sum += x[start + c];
    }
    let mean = tree_sum(lane, sum) / f32(p.cols);
    var squares = 0.0;
    for (var c = lane; c < p.cols; c += 256u) {
        let v = x[start + c] - mean;
        squares += v * v;
    }
    let deviation = 1.0 / sqrt(tree_sum(lane, squares) / f32(p.cols) + p.eps);
    for (var c = lane; c < p.cols; c += 256u) {
        y[start + c] = gamma[c] * (x[start + c] - mean) * deviation + beta[c];
    }
    if (lane == 0u) {
        statistics[2u * row.x] = mean;
        statistics[2u * row.x + 1u] = deviation;
    }
}
