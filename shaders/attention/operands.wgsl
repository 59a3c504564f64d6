// What every attention kernel is told, and how it finds its way. Offsets and pitches are in quads (four elements).
struct Params {
    // Workgroups: `tiles` for each head, `jobs` in all, folded: job = wg.y grid_x + wg.x.
    tiles: u32, jobs: u32, grid_x: u32,
    heads: u32, kv_heads: u32,
    // Queries, keys, quads of a head.
    rows: u32, cols: u32, quads: u32,
    // From one position of the sequence to the next; where keys and values start.
    q_pitch: u32, kv_pitch: u32, o_pitch: u32, k_start: u32, v_start: u32,
    // The turns of this dispatch: tiles of the others, `to` excluded.
    start: u32, to: u32,
    causal: u32, scale: f32,
    // Dropout: stream, words below `threshold` are dropped, the others' factor.
    key: u32, threshold: u32, keep: f32,
}
@group(0) @binding(0) var<uniform> p: Params;

// Operands and results by number, for functions that serve several.
const Q = 0u;
const K = 1u;
const V = 2u;
const DY = 3u;

// The score of a key that a query does not see: below all others.
const HIDDEN = -3e38;

// Where a head of a sample starts; its rows follow q_pitch, kv_pitch, or (o, the result and its gradient) o_pitch apart.
fn q_base(batch: u32, head: u32) -> u32 {
    return batch * p.rows * p.q_pitch + head * p.quads;
}

fn k_base(batch: u32, kv_head: u32) -> u32 {
    return batch * p.cols * p.kv_pitch + p.k_start + kv_head * p.quads;
}

fn v_base(batch: u32, kv_head: u32) -> u32 {
    return batch * p.cols * p.kv_pitch + p.v_start + kv_head * p.quads;
}

fn o_base(batch: u32, head: u32) -> u32 {
    return batch * p.rows * p.o_pitch + head * p.quads;
}

// e^(score - top), 0 where hidden.
fn weight(score: vec4<f32>, top: vec4<f32>) -> vec4<f32> {
    return select(exp4(score - top), vec4<f32>(), score <= vec4(HIDDEN));
}
#if PACKED
// Queries, keys and values in one tensor.
@group(0) @binding(1) var<storage, read_write> qkv: array<vec4<f32>>;

fn operand(which: u32, i: u32) -> vec4<f32> {
    return qkv[i];
}
#else
// Queries, keys and values in three tensors.
@group(0) @binding(1) var<storage, read_write> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;

fn operand(which: u32, i: u32) -> vec4<f32> {
    switch which {
        case Q: { return q[i]; }
        case K: { return k[i]; }
        default: { return v[i]; }
    }
}
#endif
#if FORWARD
// Results of attention: o [b, rows, heads, d] and, for each row of scores, the logarithm of the sum of its exponentials.
@group(0) @binding(4) var<storage, read_write> o: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;

fn source(which: u32, i: u32) -> vec4<f32> {
    return operand(which, i);
}

fn result(which: u32, i: u32) -> vec4<f32> {
    return o[i];
}

fn set_result(which: u32, i: u32, value: vec4<f32>) {
    o[i] = value;
}
#else
// What the gradients of attention read besides the operands: the gradient of the result, and for each row of scores the
// logarithm of the sum of its exponentials and the mean slope of its weights (attention_means).
@group(0) @binding(4) var<storage, read_write> dy: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> stats: array<vec2<f32>>;

fn source(which: u32, i: u32) -> vec4<f32> {
    if (which == DY) {
        return dy[i];
    }
    return operand(which, i);
}
#if PACKED
// The gradients of queries, keys and values in one tensor, laid out as they are.
@group(0) @binding(6) var<storage, read_write> dqkv: array<vec4<f32>>;

fn result(which: u32, i: u32) -> vec4<f32> {
    return dqkv[i];
}

fn set_result(which: u32, i: u32, value: vec4<f32>) {
    dqkv[i] = value;
}
#elif DKV
// The gradients of keys and values in tensors of their own.
@group(0) @binding(6) var<storage, read_write> dk: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> dv: array<vec4<f32>>;

fn result(which: u32, i: u32) -> vec4<f32> {
    if (which == K) {
        return dk[i];
    }
    return dv[i];
}

fn set_result(which: u32, i: u32, value: vec4<f32>) {
    if (which == K) {
        dk[i] = value;
    } else {
        dv[i] = value;
    }
}
#else
// The gradient of the queries in a tensor of its own.
@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;

fn result(which: u32, i: u32) -> vec4<f32> {
    return dq[i];
}

fn set_result(which: u32, i: u32, value: vec4<f32>) {
    dq[i] = value;
}
#endif
#endif
#if ATTENTION_DROPOUT
#import common/random
// Dropout: the factors of four neighbouring weights, 0 or 1 / (1 - p). They are a function of (seed, step, key, row, column)
// by pcg4d (Jarzynski & Olano 2020): drawn again, they are the same.
// scalars [8]: graph::StepScalars
@group(0) @binding(8) var<storage, read_write> scalars: array<u32>;
const DROPOUT = true;

// Of row `row` = (batch heads + head) rows + query, keys 4 quad to 4 quad + 3.
fn kept(row: u32, quad: u32) -> vec4<f32> {
    let drawn = pcg4d(vec4(row, quad, scalars[3] ^ scalars[5], scalars[4] ^ (p.key * 0x9e3779b9u)));
    return select(vec4<f32>(), vec4(p.keep), drawn >= vec4(p.threshold));
}
#else
// No dropout.
const DROPOUT = false;

fn kept(row: u32, quad: u32) -> vec4<f32> {
    return vec4(1.0);
}
#endif
