// y overwrites x: one binding, because two writable bindings must not overlap.
@group(0) @binding(2) var<storage, read_write> y: array<InMemory>;
fn x_at(i: u32) -> Elem {
    return from_memory(y[i]);
}
fn set_y(i: u32, to: Elem) {
    y[i] = to_memory(to);
}
