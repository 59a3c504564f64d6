// Reads of B for four iterations: with B_COLUMNS of B [N, K], else of B [K, N].
#if B_COLUMNS
// B [N, K]: each of four neighbouring columns gives four steps of K in one read; they are transposed here.
struct Steps {
    b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>,
}
// `start`: start of this batch's B, `col` and `k`: which four columns and which four steps.
fn steps_of_b(start: u32, col: u32, k: u32) -> Steps {
    let k4 = p.k / 4u;
    let at = start + col * p.k + k;
    let t0 = read_b(at);
    let t1 = read_b(at + k4);
    let t2 = read_b(at + 2u * k4);
    let t3 = read_b(at + 3u * k4);
    return Steps(
        vec4(t0.x, t1.x, t2.x, t3.x), vec4(t0.y, t1.y, t2.y, t3.y),
        vec4(t0.z, t1.z, t2.z, t3.z), vec4(t0.w, t1.w, t2.w, t3.w),
    );
}
#else
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
#endif
