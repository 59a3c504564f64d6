// cast: f32 -> u32 truncates and saturates, NaN becomes 0; u32 -> f32 rounds to nearest
// x [n] -> y [n], both as bits
// grid: threads of four elements, folded      overrides: TO_U32
override TO_U32: bool = false;
struct Params {
    threads_x: u32,
    quads: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

// By bits: a compiler may assume that no float is NaN, and conversions out of range differ by driver.
fn to_u32(bits: vec4<u32>) -> vec4<u32> {
    let v = bitcast<vec4<f32>>(bits);
    let small = vec4<u32>(clamp(v, vec4(0.0), vec4(4294967040.0)));
    let magnitude = bits & vec4(0x7fffffffu);
    let negative = bits != magnitude;
    let huge = magnitude >= vec4(0x4f800000u); // 2^32
    let nan = magnitude > vec4(0x7f800000u);
    return select(select(small, vec4(0xffffffffu), huge), vec4(0u), negative | nan);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        if (TO_U32) {
            y[i] = to_u32(x[i]);
        } else {
            y[i] = bitcast<vec4<u32>>(vec4<f32>(x[i]));
        }
    }
}
