// Gates and state of one step of a recurrent layer, whose products are computed, and the gradients of these. Gates lie one
// after the other in a row. Where a row has no four columns left, a thread computes its last column more than once.
#import common/grid
#import elementwise/unary_functions
#if LSTM && !GRADIENT
// lstm_gates: i, f, o = σ(x), g = tanh(x), memory' = f memory + i g, y = o tanh(memory')
// x [rows, i f g o of size], memory [rows, size] -> y [rows, size], memory' [rows, size]
#elif LSTM
// lstm_gates_grad: its gradient, from memory' and the gradients of both results
// x, memory, memory', dy, dmemory' -> dx, dmemory
#elif GRADIENT
// gru_gates_grad: its gradient
// x, back, h, dy -> dx, dback, dh
#else
// gru_gates: r, z = σ(x + back), n = tanh(x + r back), y = n + z (h - n)
// x [rows, r z n of size], back [rows, r z n of size], h [rows, size] -> y [rows, size]
#endif
// grid: one thread per four columns of a row, folded      overrides: none
struct Params {
    threads_x: u32,
    jobs: u32,
    quads: u32,
    size: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> second: array<f32>;
@group(0) @binding(3) var<storage, read_write> third: array<f32>;
@group(0) @binding(4) var<storage, read_write> fourth: array<f32>;
#if GRADIENT
@group(0) @binding(5) var<storage, read_write> fifth: array<f32>;
@group(0) @binding(6) var<storage, read_write> sixth: array<f32>;
@group(0) @binding(7) var<storage, read_write> seventh: array<f32>;
#endif

fn x_at(at: vec4<u32>) -> vec4<f32> { return vec4(x[at.x], x[at.y], x[at.z], x[at.w]); }
fn second_at(at: vec4<u32>) -> vec4<f32> { return vec4(second[at.x], second[at.y], second[at.z], second[at.w]); }
#if !LSTM || GRADIENT
fn third_at(at: vec4<u32>) -> vec4<f32> { return vec4(third[at.x], third[at.y], third[at.z], third[at.w]); }
#endif
#if !GRADIENT
fn set_fourth(at: vec4<u32>, v: vec4<f32>) {
    fourth[at.x] = v.x;
    fourth[at.y] = v.y;
    fourth[at.z] = v.z;
    fourth[at.w] = v.w;
}
#if LSTM
fn set_third(at: vec4<u32>, v: vec4<f32>) {
    third[at.x] = v.x;
    third[at.y] = v.y;
    third[at.z] = v.z;
    third[at.w] = v.w;
}
#endif
#else
fn fourth_at(at: vec4<u32>) -> vec4<f32> { return vec4(fourth[at.x], fourth[at.y], fourth[at.z], fourth[at.w]); }
#if LSTM
fn fifth_at(at: vec4<u32>) -> vec4<f32> { return vec4(fifth[at.x], fifth[at.y], fifth[at.z], fifth[at.w]); }
#else
fn set_fifth(at: vec4<u32>, v: vec4<f32>) {
    fifth[at.x] = v.x;
    fifth[at.y] = v.y;
    fifth[at.z] = v.z;
    fifth[at.w] = v.w;
}
#endif
fn set_sixth(at: vec4<u32>, v: vec4<f32>) {
    sixth[at.x] = v.x;
    sixth[at.y] = v.y;
    sixth[at.z] = v.z;
    sixth[at.w] = v.w;
}
fn set_seventh(at: vec4<u32>, v: vec4<f32>) {
    seventh[at.x] = v.x;
    seventh[at.y] = v.y;
    seventh[at.z] = v.z;
    seventh[at.w] = v.w;
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let job = thread_number(id, p.threads_x);
    if (job >= p.jobs) {
        return;
    }
    let row = job / p.quads;
    let columns = min(vec4(0u, 1u, 2u, 3u) + job % p.quads * 4u, vec4(p.size - 1u));
    let own = columns + row * p.size;
    let next = vec4(p.size);
#if LSTM
    let first = columns + row * p.size * 4u;
    let i = sigmoid(x_at(first));
    let f = sigmoid(x_at(first + next));
    let g = tanh_safe(x_at(first + next * 2u));
    let o = sigmoid(x_at(first + next * 3u));
    let memory = second_at(own);
#if GRADIENT
    let t = tanh_safe(third_at(own));
    let dy = fourth_at(own);
    let d = fifth_at(own) + dy * o * (1.0 - t * t);
    set_sixth(first, d * g * i * (1.0 - i));
    set_sixth(first + next, d * memory * f * (1.0 - f));
    set_sixth(first + next * 2u, d * i * (1.0 - g * g));
    set_sixth(first + next * 3u, dy * t * o * (1.0 - o));
    set_seventh(own, d * f);
#else
    let now = f * memory + i * g;
    set_third(own, o * tanh_safe(now));
    set_fourth(own, now);
#endif
#else
    let first = columns + row * p.size * 3u;
    let r = sigmoid(x_at(first) + second_at(first));
    let z = sigmoid(x_at(first + next) + second_at(first + next));
    let back = second_at(first + next * 2u);
    let n = tanh_safe(x_at(first + next * 2u) + r * back);
    let h = third_at(own);
#if GRADIENT
    let dy = fourth_at(own);
    let dn = dy * (1.0 - z) * (1.0 - n * n);
    let dr = dn * back * r * (1.0 - r);
    let dz = dy * (h - n) * z * (1.0 - z);
    set_fifth(first, dr);
    set_fifth(first + next, dz);
    set_fifth(first + next * 2u, dn);
    set_sixth(first, dr);
    set_sixth(first + next, dz);
    set_sixth(first + next * 2u, dn * r);
    set_seventh(own, dy * z);
#else
    set_fourth(own, n + z * (h - n));
#endif
#endif
}
