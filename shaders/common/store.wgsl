// What happens to a result of a product or a convolution: it is stored, or passed through an epilogue.
#if EPILOGUE
#import generated
#elif STORE_VEC4
// What becomes of four neighbouring results of a matrix product: they are stored. A text written for a plan may stand here
// instead, and compute something with them first.
struct Rest {
    unused: u32,
}
fn store(at: u32, v: vec4<f32>) { c[at] = v; }
#elif STORE_LANES
// What becomes of results of a matrix product: those that are live are stored, each in its place; none follows one that is
// not. A text written for a plan may stand here instead, and compute something with them first.
struct Rest {
    unused: u32,
}
fn store(at: vec4<u32>, live: vec4<bool>, v: vec4<f32>) {
    if (live.x) { c[at.x] = v.x; }
    if (live.y) { c[at.y] = v.y; }
    if (live.z) { c[at.z] = v.z; }
    if (live.w) { c[at.w] = v.w; }
}
#else
// What becomes of a result: it is stored. A text written for a plan may stand here instead, and compute something with it
// first.
struct Rest {
    unused: u32,
}
fn store(at: u32, v: f32) { c[at] = v; }
#endif
