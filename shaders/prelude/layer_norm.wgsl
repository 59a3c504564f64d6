// Layer norm: rows are centred; of each, mean and 1/deviation are kept.
const CENTRED = true;
@group(0) @binding(4) var<storage, read_write> statistics: array<vec2<f32>>;
fn mean_of(row: u32) -> f32 {
    return statistics[row].x;
}
fn deviation_of(row: u32) -> f32 {
    return statistics[row].y;
}
fn centred(v: Elem, mean: f32) -> Elem {
    return v - mean;
}
