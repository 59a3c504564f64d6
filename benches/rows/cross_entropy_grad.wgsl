// logits, labels, dloss -> dlogits; nothing is kept of the forward pass, so the softmax is computed again
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> labels: array<u32>;
@group(0) @binding(3) var<storage, read_write> dloss: array<f32>;
@group(0) @binding(4) var<storage, read_write> dx: array<f32>;

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
        let target_one = select(0.0, 1.0, c == labels[row.x]);
        dx[start + c] = (exp(x[start + c] - top) / sum - target_one) * dloss[row.x];
    }
}
