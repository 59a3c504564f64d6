// Elements by index along an axis, and with SUMS the transpose of that.
#import common/grid
#if SUMS
// scatter_add: y[ids[i]] += dy[i] along an axis for i in start .. end, in their order
// ids [any] u32, dy [any] -> y [any] in place; lines are the positions without the axis
// grid: one thread per line, folded      overrides: none
struct Params {
    threads_x: u32,
    lines: u32,
    len: u32,
    start: u32,
    end: u32,
    dy_along: u32,
    y_along: u32,
    id_along: u32,
    dims: Six,
    dy_strides: Six,
    y_strides: Six,
    id_strides: Six,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let line = thread_number(id, p.threads_x);
    if (line >= p.lines) {
        return;
    }
    let at = coordinates(line, p.dims);
    let source = offset_of(at, p.dy_strides);
    let line_start = offset_of(at, p.y_strides);
    let first_id = offset_of(at, p.id_strides);
    for (var i = p.start; i < p.end; i++) {
        let k = min(ids[first_id + i * p.id_along], p.len - 1u);
        y[line_start + k * p.y_along] += dy[source + i * p.dy_along];
    }
}
#else
// gather: y[i] = x[ids[i]] along an axis; an id past the end reads the last element
// x [any], ids [any] u32 -> y [dims]
// grid: one thread per element, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32,
    len: u32,
    along: u32,
    dims: Six,
    x_strides: Six,
    id_strides: Six,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.n) {
        return;
    }
    let at = coordinates(i, p.dims);
    let k = min(ids[offset_of(at, p.id_strides)], p.len - 1u);
    y[i] = x[offset_of(at, p.x_strides) + k * p.along];
}
#endif
