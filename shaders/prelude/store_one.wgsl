// What becomes of a result: it is stored. A text written for a plan may stand here instead, and compute something with it
// first.
struct Rest {
    unused: u32,
}
fn store(at: u32, v: f32) {
    c[at] = v;
}
