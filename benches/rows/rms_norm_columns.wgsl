// x, statistics, dy -> dγ: a workgroup for each column
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> statistics: array<f32>;
@group(0) @binding(3) var<storage, read_write> dy: array<f32>;
@group(0) @binding(4) var<storage, read_write> dgamma: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) column: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var product = 0.0;
    for (var row = lane; row < p.rows; row += 256u) {
        product += dy[row * p.cols + column.x] * x[row * p.cols + column.x] * statistics[row];
    }
    product = tree_sum(lane, product);
    if (lane == 0u) {
        dgamma[column.x] = product;
    }
}
