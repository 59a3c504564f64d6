// logits, labels -> loss, lse
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> labels: array<u32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;

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
    if (lane == 0u) {
        loss[row.x] = top - x[start + labels[row.x]] + log(sum);
        lse[2u * row.x] = top;
        lse[2u * row.x + 1u] = log(sum);
    }
}
