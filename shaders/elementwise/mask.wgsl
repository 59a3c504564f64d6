// Bits that say where a function lets its gradient pass, and with GRADIENT the gradient by those bits.
#import common/grid
#import common/elem
#if GRADIENT
#import common/operand
// mask_grad: dx = dy where the element's bit is set, else slope dy
// dy as x [n], bits [n / 32] -> dx as y [n], or in place of dy
// grid: threads of four elements, folded      overrides: none
struct Params {
    threads_x: u32,
    quads: u32,
    slope: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> bits: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.quads) {
        let mine = (vec4(bits[i / 8u] >> (i % 8u * 4u)) & vec4(1u, 2u, 4u, 8u)) != vec4(0u);
        // The product that unary_grad.wgsl makes: the same bits.
        set_y(i, x_at(i) * select(vec4(p.slope), vec4(1.0), mine));
    }
}
#else
#import common/nan
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

// Bits of elements past the tensor's end have no meaning.
fn four(i: u32) -> u32 {
    let bits = select(vec4(0u), vec4(1u, 2u, 4u, 8u), passes(from_memory(s[min(i, p.quads - 1u)])));
    return bits.x | bits.y | bits.z | bits.w;
}

#if WORKGROUP
// mask_wg: as mask.wgsl
// grid: one thread per four elements, so that neighbours read neighbours; eight share a word, folded      overrides: F
var<workgroup> parts: array<u32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = thread_number(id, p.threads_x);
    parts[lane] = four(i) << (4u * (i % 8u));
    workgroupBarrier();
    if (i % 8u == 0u && i / 8u < p.words) {
        let low = parts[lane] | parts[lane + 1u] | parts[lane + 2u] | parts[lane + 3u];
        let high = parts[lane + 4u] | parts[lane + 5u] | parts[lane + 6u] | parts[lane + 7u];
        y[i / 8u] = low | high;
    }
}
#else
// mask: y = a bit for each element of s, 32 to a word: whether a function lets its gradient pass
// s [n] -> y [n / 32] u32
// grid: one thread per word, folded (CPU adapters)      overrides: F
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.words) {
        let first = 8u * i;
        let low = four(first) | (four(first + 1u) << 4u) | (four(first + 2u) << 8u) | (four(first + 3u) << 12u);
        let high = four(first + 4u) | (four(first + 5u) << 4u) | (four(first + 6u) << 8u) | (four(first + 7u) << 12u);
        y[i] = low | (high << 16u);
    }
}
#endif
#endif
