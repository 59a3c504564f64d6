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
