// x, statistics, γ, dy -> dx
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> statistics: array<f32>;
@group(0) @binding(3) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(4) var<storage, read_write> dy: array<f32>;
@group(0) @binding(5) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = row.x * p.cols;
    let deviation = statistics[row.x];
    var product = 0.0;
    for (var c = lane; c < p.cols; c += 256u) {
        product += dy[start + c] * gamma[c] * x[start + c] * deviation;
    }
    let slope = tree_sum(lane, product) / f32(p.cols);
    for (var c = lane; c < p.cols; c += 256u) {
        dx[start + c] = deviation * (dy[start + c] * gamma[c] - x[start + c] * deviation * slope);
    }
}
