// Layer norm with LAYER, else RMS norm.
#if LAYER
// Layer norm: rows are centred; of each, mean and 1/deviation are kept.
const CENTRED = true;
@group(0) @binding(4) var<storage, read_write> statistics: array<vec2<f32>>;
fn mean_of(row: u32) -> f32 { return statistics[row].x; }
fn deviation_of(row: u32) -> f32 { return statistics[row].y; }
fn centred(v: Elem, mean: f32) -> Elem { return v - mean; }
#else
// RMS norm: rows are not centred; of each, 1/√(mean of x² + ε) is kept.
const CENTRED = false;
@group(0) @binding(4) var<storage, read_write> statistics: array<f32>;
fn mean_of(row: u32) -> f32 { return 0.0; }
fn deviation_of(row: u32) -> f32 { return statistics[row]; }
fn centred(v: Elem, mean: f32) -> Elem { return v; }
#endif
