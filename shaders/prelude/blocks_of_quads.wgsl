// Blocks for tile128, quad by quad.
struct Steps {
    s0: Step, s1: Step, s2: Step, s3: Step,
}
fn steps_from(k: u32, end: u32) -> Steps {
    let s0 = step_of(k, end);
    let s1 = step_after(s0, k + 1u < end);
    let s2 = step_after(s1, k + 2u < end);
    return Steps(s0, s1, s2, step_after(s2, k + 3u < end));
}
fn a_block(rows: Rows, k: u32, end: u32) -> Block {
    let at = steps_from(k, end);
    return Block(a_quad(rows, at.s0), a_quad(rows, at.s1), a_quad(rows, at.s2), a_quad(rows, at.s3));
}
fn b_block(columns: Columns, k: u32, end: u32) -> Block {
    let at = steps_from(k, end);
    return Block(b_quad(columns, at.s0), b_quad(columns, at.s1), b_quad(columns, at.s2), b_quad(columns, at.s3));
}
