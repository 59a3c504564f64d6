// What becomes of four neighbouring results of a matrix product: they are stored. A text written for a plan may stand here
// instead, and compute something with them first.
struct Rest {
    unused: u32,
}
fn store(at: u32, v: vec4<f32>) {
    c[at] = v;
}
