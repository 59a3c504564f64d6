// B [K, N]: four steps of K at four neighbouring columns are four reads.
struct Steps {
    b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>,
}
// `start`: start of this batch's B, `col` and `k`: which four columns and which four steps.
fn steps_of_b(start: u32, col: u32, k: u32) -> Steps {
    let n4 = p.n / 4u;
    let at = start + col + k * p.n;
    return Steps(read_b(at), read_b(at + n4), read_b(at + 2u * n4), read_b(at + 3u * n4));
}
