// x and y in memory of their own.
@group(0) @binding(1) var<storage, read_write> x: array<Elem>;
@group(0) @binding(2) var<storage, read_write> y: array<Elem>;
fn x_at(i: u32) -> Elem {
    return x[i];
}
