// row_norm_sums_end: the sums of all parts, in their order
// parts [parts, 2, cols] -> dgamma [cols], and of layer norm dbeta [cols]
// grid: one thread per column, folded      overrides: none
struct Params {
    threads_x: u32,
    cols: u32, // in Elems
    parts: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> parts: array<InMemory>;
@group(0) @binding(2) var<storage, read_write> dgamma: array<InMemory>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = thread_number(id, p.threads_x);
    if (c >= p.cols) {
        return;
    }
    var products = Elem();
    var sums = Elem();
    for (var part = 0u; part < p.parts; part++) {
        products += from_memory(parts[part * 2u * p.cols + c]);
        if (CENTRED) {
            sums += from_memory(parts[(part * 2u + 1u) * p.cols + c]);
        }
    }
    dgamma[c] = to_memory(products);
    keep_beta(c, sums);
}
