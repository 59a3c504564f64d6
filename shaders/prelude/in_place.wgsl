// y overwrites x: one binding, because two writable bindings must not overlap.
@group(0) @binding(2) var<storage, read_write> y: array<Elem>;
fn x_at(i: u32) -> Elem {
    return y[i];
}
