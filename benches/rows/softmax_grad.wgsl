// y, dy -> y (dy - Σ dy y)
@group(0) @binding(1) var<storage, read_write> s: array<f32>;
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = row.x * p.cols;
    var sum = 0.0;
    for (var c = lane; c < p.cols; c += 256u) {
        sum += s[start + c] * dy[start + c];
    }
    sum = tree_sum(lane, sum);
    for (var c = lane; c < p.cols; c += 256u) {
        dx[start + c] = s[start + c] * (dy[start + c] - sum);
    }
}
