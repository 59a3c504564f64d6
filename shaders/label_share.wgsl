// label_share: y = 1 / max(1, Σ count)
// count [chunks] -> y []
// grid: one thread      overrides: none
struct Params {
    chunks: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> count: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main() {
    var total = 0.0;
    for (var i = 0u; i < p.chunks; i++) {
        total += count[i];
    }
    y[0] = 1.0 / max(total, 1.0);
}
