// x, statistics, dy -> dγ, dβ: a workgroup for each column
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> statistics: array<f32>;
@group(0) @binding(3) var<storage, read_write> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> dgamma: array<f32>;
@group(0) @binding(5) var<storage, read_write> dbeta: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) column: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var product = 0.0;
    var sum = 0.0;
    for (var row = lane; row < p.rows; row += 256u) {
        let g = dy[row * p.cols + column.x];
        product += g * (x[row * p.cols + column.x] - statistics[2u * row]) * statistics[2u * row + 1u];
        sum += g;
    }
    product = tree_sum(lane, product);
    sum = tree_sum(lane, sum);
    if (lane == 0u) {
        dgamma[column.x] = product;
        dbeta[column.x] = sum;
    }
}
