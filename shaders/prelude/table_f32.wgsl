// A table in 32 bits.
@group(0) @binding(1) var<storage, read_write> table: array<InMemory>;
fn table_at(i: u32) -> Elem {
    return from_memory(table[i]);
}
