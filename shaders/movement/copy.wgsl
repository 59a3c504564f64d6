// Copies under strides; with FILL one number everywhere, with IOTA the index along an axis.
#import common/grid
#if FILL
// fill: y = bits
// y [n] u32 or f32
// grid: threads of four elements, folded      overrides: none
struct Params {
    threads_x: u32,
    quads: u32,
    bits: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        y[i] = vec4(p.bits);
    }
}
#else
#if IOTA
// iota: y[i] = i / stride % len
// y [n]
// grid: one thread per element, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32,
    stride: u32,
    len: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.n) {
        y[i] = f32(i / p.stride % p.len);
    }
}
#else
// copy: y[to + at · y_strides] = x[from + at · x_strides] for every position `at` in dims; bits, not numbers
// x, y [any] u32 or f32: permutes, slices, pads, joins and broadcasts
// grid: one thread per element, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32,
    from_offset: u32,
    to_offset: u32,
    dims: Six,
    x_strides: Six,
    y_strides: Six,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.n) {
        let at = coordinates(i, p.dims);
        y[p.to_offset + offset_of(at, p.y_strides)] = x[p.from_offset + offset_of(at, p.x_strides)];
    }
}
#endif
#endif
