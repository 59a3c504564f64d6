// not_finite_end: y = 1 if any count is above 0, else 0
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
    var any = 0.0;
    for (var i = 0u; i < p.chunks; i++) {
        any = max(any, count[i]);
    }
    y[0] = min(any, 1.0);
}
