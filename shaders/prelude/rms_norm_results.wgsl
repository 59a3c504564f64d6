// What RMS norm keeps.
fn beta_at(column: u32) -> Elem {
    return Elem();
}
fn keep(row: u32, mean: f32, deviation: f32) {
    statistics[row] = deviation;
}
