// binary_strided: y = f(x, b) with any broadcasting, or f(b, x) with SWAP
// x, b under strides (0 where broadcast) -> y [n] of shape dims, or in place of an x that is not broadcast
// grid: one thread per element, folded      overrides: F, SWAP
override SWAP: bool = false;
struct Params {
    threads_x: u32,
    n: u32,
    dims: Six,
    x_strides: Six,
    b_strides: Six,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> b: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.n) {
        let at = coordinates(i, p.dims);
        let own = x_at(offset_of(at, p.x_strides));
        let other = b[offset_of(at, p.b_strides)];
        set_y(i, binary(vec4(select(own, other, SWAP)), vec4(select(other, own, SWAP))).x);
    }
}
