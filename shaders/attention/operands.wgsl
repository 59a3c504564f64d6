// Parameters, bindings and offsets of the attention kernels. "Own" rows are those that a workgroup computes results for,
// "other" rows those that it loops over. Offsets and pitches count vec4 (quads).
struct Params {
    // Workgroups: `tiles` for each head, `jobs` in all, folded: job = wg.y * grid_x + wg.x.
    tiles: u32, jobs: u32, grid_x: u32,
    heads: u32, kv_heads: u32,
    // Queries, keys, vec4 of a head.
    rows: u32, cols: u32, quads: u32,
    // Distance from one position of the sequence to the next; where keys and values start.
    q_pitch: u32, kv_pitch: u32, o_pitch: u32, k_start: u32, v_start: u32,
    // The iterations of this dispatch over tiles of other rows: `start` to `to` (exclusive), `span` for each head.
    start: u32, to: u32, span: u32,
    // Own row i sees other rows i - before to i + after.
    before: u32, after: u32,
    // Position of the first query among the keys, and the number of samples.
    offset: u32, samples: u32,
    // Which query head of its layer the first one is, how many the layer has, and the largest power of two that is not above
    // them; 0 without ALiBi.
    first_head: u32, all_heads: u32, lower: u32,
    scale: f32,
    // With CAPPED a score is cap tanh(score / cap), before ALiBi.
    cap: f32,
    // Dropout: random stream; random words below `threshold` drop; factor of the remaining weights.
    key: u32, threshold: u32, keep: f32,
}
@group(0) @binding(0) var<uniform> p: Params;

// Operands and results by number.
const Q = 0u;
const K = 1u;
const V = 2u;
const DY = 3u;

// Four rows, one vec4 of each.
struct Quads { r0: vec4<f32>, r1: vec4<f32>, r2: vec4<f32>, r3: vec4<f32>, }

fn transposed(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> Quads {
    return Quads(
        vec4(a.x, b.x, c.x, d.x), vec4(a.y, b.y, c.y, d.y),
        vec4(a.z, b.z, c.z, d.z), vec4(a.w, b.w, c.w, d.w),
    );
}

// Where a head of a sample starts. Its rows are q_pitch, kv_pitch or (result and gradient of the result) o_pitch apart.
fn q_base(batch: u32, head: u32) -> u32 { return batch * p.rows * p.q_pitch + head * p.quads; }

fn k_base(batch: u32, kv_head: u32) -> u32 { return batch * p.cols * p.kv_pitch + p.k_start + kv_head * p.quads; }
fn v_base(batch: u32, kv_head: u32) -> u32 { return batch * p.cols * p.kv_pitch + p.v_start + kv_head * p.quads; }
fn o_base(batch: u32, head: u32) -> u32 { return batch * p.rows * p.o_pitch + head * p.quads; }

#if PACKED
// Queries, keys and values in one tensor.
@group(0) @binding(1) var<storage, read_write> qkv: array<vec4<f32>>;
fn operand(which: u32, i: u32) -> vec4<f32> { return qkv[i]; }
#else
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
@group(0) @binding(4) var<storage, read_write> o: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;
fn source(which: u32, i: u32) -> vec4<f32> { return operand(which, i); }
fn result(which: u32, i: u32) -> vec4<f32> { return o[i]; }
fn set_result(which: u32, i: u32, value: vec4<f32>) { o[i] = value; }
#else
// The gradient of the result, and for each row of scores its lse and the weighted mean of dP (attention/means).
@group(0) @binding(4) var<storage, read_write> dy: array<vec4<f32>>;
// With DOCUMENTS, after those where the document of each key starts and ends, exact as f32 below 2^24.
@group(0) @binding(5) var<storage, read_write> stats: array<vec2<f32>>;
// Of four rows.
struct Stats { lse: vec4<f32>, mean: vec4<f32>, }

fn stats_of(rows: vec4<u32>) -> Stats {
    let x = stats[rows.x];
    let y = stats[rows.y];
    let z = stats[rows.z];
    let w = stats[rows.w];
    return Stats(vec4(x.x, y.x, z.x, w.x), vec4(x.y, y.y, z.y, w.y));
}

fn source(which: u32, i: u32) -> vec4<f32> {
    if (which == DY) {
        return dy[i];
    }
    return operand(which, i);
}
#if PACKED
// The gradients of queries, keys and values in one tensor, laid out as the operands.
@group(0) @binding(6) var<storage, read_write> dqkv: array<vec4<f32>>;
fn result(which: u32, i: u32) -> vec4<f32> { return dqkv[i]; }
fn set_result(which: u32, i: u32, value: vec4<f32>) { dqkv[i] = value; }
#elif DKV
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
@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;
fn result(which: u32, i: u32) -> vec4<f32> { return dq[i]; }
fn set_result(which: u32, i: u32, value: vec4<f32>) { dq[i] = value; }
#endif
#endif
#if DOCUMENTS && FORWARD
// Where the document of each key of each sample starts and ends (exclusive).
@group(0) @binding(6) var<storage, read_write> documents: array<vec2<u32>>;
#endif
#if ATTENTION_DROPOUT
#import common/random
// Dropout. The random words are a function of (seed, step, key, row, column), so the backward pass draws the same ones.
// scalars [9]: graph::StepScalars
@group(0) @binding(8) var<storage, read_write> scalars: array<u32>;
const DROPOUT = true;

// The factors, 0 or 1 / (1 - p), of keys 4 quad to 4 quad + 3 in row (batch heads + head) rows + query. They are drawn for
// (batch all_heads + first_head + head) rows + query.
fn kept(row: u32, quad: u32) -> vec4<f32> {
    var of_layer = row;
    if (p.heads != p.all_heads) {
        of_layer += (row / (p.heads * p.rows) * (p.all_heads - p.heads) + p.first_head) * p.rows;
    }
    let drawn = pcg4d(vec4(of_layer, quad, scalars[3] ^ scalars[5], scalars[4] ^ (p.key * 0x9e3779b9u)));
    return select(vec4<f32>(), vec4(p.keep), drawn >= vec4(p.threshold));
}
#else
const DROPOUT = false;
fn kept(row: u32, quad: u32) -> vec4<f32> { return vec4(1.0); }
#endif
