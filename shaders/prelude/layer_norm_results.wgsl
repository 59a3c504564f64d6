// What layer norm adds and keeps.
@group(0) @binding(5) var<storage, read_write> beta: array<InMemory>;
fn beta_at(column: u32) -> Elem {
    return from_memory(beta[column]);
}
fn keep(row: u32, mean: f32, deviation: f32) {
    statistics[row] = vec2(mean, deviation);
}
