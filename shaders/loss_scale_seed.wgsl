// loss_scale_seed: y = the loss scale; a state that was never written holds 0 and stands for the first one
// state [4] (scale, clean steps, skipped steps, unused) -> y []
// grid: one thread      overrides: none
struct Params {
    start: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> state: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main() {
    y[0] = select(state[0], p.start, state[0] == 0.0);
}
