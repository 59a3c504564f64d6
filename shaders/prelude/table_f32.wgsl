// A table in 32 bits.
@group(0) @binding(1) var<storage, read_write> table: array<Elem>;
fn table_at(i: u32) -> Elem {
    return table[i];
}
