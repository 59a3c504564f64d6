// row_norm_sums: Σ dy x̂ and (layer norm) Σ dy of each column over a part of the rows, x̂ = (x - mean) deviation
// x [rows, cols], dy [rows, cols], statistics [rows, 2 or 1] -> parts [parts, 2, cols]
// grid: one thread per column and part, folded      overrides: none
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32, // in Elems
    parts: u32,
    part_len: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<Elem>;
@group(0) @binding(2) var<storage, read_write> dy: array<Elem>;
@group(0) @binding(3) var<storage, read_write> parts: array<Elem>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let job = thread_number(id, p.threads_x);
    if (job >= p.parts * p.cols) {
        return;
    }
    let part = job / p.cols;
    let c = job - part * p.cols;
    var products = Elem();
    var sums = Elem();
    for (var row = part * p.part_len; row < min(part * p.part_len + p.part_len, p.rows); row++) {
        let g = dy[row * p.cols + c];
        products += g * ((x[row * p.cols + c] - mean_of(row)) * deviation_of(row));
        sums += g;
    }
    parts[part * 2u * p.cols + c] = products;
    if (CENTRED) {
        parts[(part * 2u + 1u) * p.cols + c] = sums;
    }
}
