// A function of two elements; with STRIDED under any broadcasting.
#import common/grid
#import common/elem
#import common/operand
#import elementwise/binary_functions
#if STRIDED
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
#else
// binary: y = f(x, b), or f(b, x) with SWAP
// x [n]; b [n], a row of length 4 k that repeats, or one number with B_SCALAR -> y [n], or in place of x
// grid: threads of four elements, folded      overrides: F, SWAP, B_SCALAR, B_REPEATS
override SWAP: bool = false;
override B_SCALAR: bool = false;
// A division for each four elements is dear: only where b is shorter than x.
override B_REPEATS: bool = false;
struct Params {
    threads_x: u32,
    quads: u32,
    b_quads: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> b: array<InMemory>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        let own = x_at(i);
        var at = i;
        if (B_REPEATS) {
            at = i % p.b_quads;
        }
        let read = from_memory(b[at]);
        let other = select(read, vec4(read.x), B_SCALAR);
        let l = select(own, other, SWAP);
        let r = select(other, own, SWAP);
        set_y(i, binary(l, r));
    }
}
#endif
