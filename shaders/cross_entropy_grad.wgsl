// cross_entropy_grad: dx = (e^(x - lse.x - lse.y) - [column = label]) dloss, 0 where the label is IGNORE (2^32 - 1)
// x [rows, cols], labels [rows] u32, lse [rows, 2], dloss [rows] -> dx as y [rows, cols], or in place of x
// grid: one thread per element, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> labels: array<u32>;
@group(0) @binding(4) var<storage, read_write> lse: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> dloss: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.n) {
        let row = i / p.cols;
        let label = labels[row];
        // In two steps: beside a large maximum the logarithm would lose its digits.
        let probability = exp((x_at(i) - lse[row].x) - lse[row].y);
        let slope = (probability - select(0.0, 1.0, i - row * p.cols == label)) * dloss[row];
        y[i] = select(slope, 0.0, label == 0xffffffffu);
    }
}
