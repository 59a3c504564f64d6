// x -> softmax(x)
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = row.x * p.cols;
    var top = -3.4028235e38;
    for (var c = lane; c < p.cols; c += 256u) {
        top = max(top, x[start + c]);
    }
    top = tree_max(lane, top);
    var sum = 0.0;
    for (var c = lane; c < p.cols; c += 256u) {
        sum += exp(x[start + c] - top);
    }
    sum = tree_sum(lane, sum);
    for (var c = lane; c < p.cols; c += 256u) {
        y[start + c] = exp(x[start + c] - top) / sum;
    }
}
