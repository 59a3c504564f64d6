// Blocks for tile128, quad by quad.
fn a_block(rows: Rows, k: u32, end: u32) -> Block {
    return Block(
        a_quad(rows, step_of(k, end)), a_quad(rows, step_of(k + 1u, end)),
        a_quad(rows, step_of(k + 2u, end)), a_quad(rows, step_of(k + 3u, end)),
    );
}
fn b_block(columns: Columns, k: u32, end: u32) -> Block {
    return Block(
        b_quad(columns, step_of(k, end)), b_quad(columns, step_of(k + 1u, end)),
        b_quad(columns, step_of(k + 2u, end)), b_quad(columns, step_of(k + 3u, end)),
    );
}
