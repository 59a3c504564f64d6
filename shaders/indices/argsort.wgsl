// argsort: the indices that sort each row; equal elements keep their order, NaN counts as the largest number
// x [rows, cols] -> y [rows, cols] u32
// grid: one thread per element, folded      overrides: DESCENDING
// A thread counts the elements before its own: the order depends on nothing but the row.
#import common/grid
override DESCENDING: bool = false;
struct Params {
    threads_x: u32,
    n: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

// Integers in the order of the numbers; 0 and -0 are equal.
fn key(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0xffffffffu;
    }
    return select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x7fffffffu);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.n) {
        return;
    }
    let column = i % p.cols;
    let start = i - column;
    let own = key(x[i]);
    var rank = 0u;
    for (var j = 0u; j < p.cols; j++) {
        let other = key(x[start + j]);
        let low = other < own;
        let before = select(low, !low && other != own, DESCENDING);
        rank += select(0u, 1u, before || (other == own && j < column));
    }
    y[start + rank] = column;
}
