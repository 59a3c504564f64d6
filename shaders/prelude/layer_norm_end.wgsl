// Layer norm has a shift.
const CENTRED = true;
@group(0) @binding(3) var<storage, read_write> dbeta: array<InMemory>;
fn keep_beta(column: u32, sum: Elem) {
    dbeta[column] = to_memory(sum);
}
