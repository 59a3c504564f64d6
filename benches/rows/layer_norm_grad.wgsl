// x, statistics, γ, dy -> dx
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> statistics: array<f32>;
@group(0) @binding(3) var<storage, read_write> gamma: array<f32>;
@group(0) @binding(4) var<storage, read_write> dy: array<f32>;
@group(0) @binding(5) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = row.x * p.cols;
    let mean = statistics[2u * row.x];
    let deviation = statistics[2u * row.x + 1u];
    var sum = 0.0;
    var product = 0.0;
    for (var c = lane; c < p.cols; c += 256u) {
        let g = dy[start + c] * gamma[c];
        sum += g;
        product += g * (x[start + c] - mean) * deviation;
    }
    let mean_g = tree_sum(lane, sum) / f32(p.cols);
    let slope = tree_sum(lane, product) / f32(p.cols);
    for (var c = lane; c < p.cols; c += 256u) {
        let g = dy[start + c] * gamma[c];
        dx[start + c] = deviation * (g - mean_g - (x[start + c] - mean) * deviation * slope);
    }
}
