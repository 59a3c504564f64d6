// Where a function lets gradients pass: four bits for four elements. F is the code of graph::Unary: clamp passes from a to
// b, told from its input; ReLU and leaky ReLU above 0, told from their output. ReLU passes at NaN.
override F: u32 = 9u;
struct Params {
    threads_x: u32,
    words: u32,
    quads: u32,
    a: f32,
    b: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> s: array<InMemory>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

fn passes(v: vec4<f32>) -> vec4<bool> {
    if (F == 8u) {
        return (v >= vec4(p.a)) & (v <= vec4(p.b));
    }
    return (v > vec4(0.0)) | (nan4(v) & vec4(F == 9u));
}

// Bits of elements behind the tensor's end mean nothing.
fn four(i: u32) -> u32 {
    let bits = select(vec4(0u), vec4(1u, 2u, 4u, 8u), passes(from_memory(s[min(i, p.quads - 1u)])));
    return bits.x | bits.y | bits.z | bits.w;
}
