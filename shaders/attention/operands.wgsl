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
    // Own row i sees other rows i - before to i + after. The largest power of two that is not above `heads`; 0 without ALiBi.
    before: u32, after: u32, lower: u32,
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

// The score of a key that a query does not see: below all others.
const HIDDEN = -3e38;

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

// Rows of one side and which rows of the other side each sees, `start` to `end` (exclusive): graph::Band.
struct Band { at: vec4<u32>, start: vec4<u32>, end: vec4<u32>, }

fn band(at: vec4<u32>, before: u32, after: u32, count: u32) -> Band {
    return Band(at, at - min(at, vec4(before)), min(at + vec4(after + 1u), vec4(count)));
}
#if DKV
fn queries_of(col: vec4<u32>) -> Band { return band(col, p.before, p.after, p.rows); }

fn keys_of(row: vec4<u32>) -> Band { return band(row, p.after, p.before, p.cols); }
#else
fn keys_of(row: vec4<u32>) -> Band { return band(row, p.before, p.after, p.cols); }
#endif

// The factor of a query's gradients of scores. The weight of its only key is 1 whatever the score: the gradient is 0, without
// rounding errors.
fn score_factor(keys: Band) -> vec4<f32> {
    return select(vec4(p.scale), vec4<f32>(), keys.end - keys.start == vec4(1u));
}

// The tiles of `tile` other rows, of `count` in all, that own rows `row` to `last` see: x to y (exclusive), at least one.
fn tiles_seen(row: u32, last: u32, tile: u32, count: u32) -> vec2<u32> {
    let first = min((row - min(row, p.before)) / tile, (count - 1u) / tile);
    let end = min(last + p.after + 1u, count);
    return vec2(first, max((end + tile - 1u) / tile, first + 1u));
}

// ALiBi: scores fall by the slope of their head, graph::Attend::slope, times the distance of query and key.
fn alibi_slope(head: u32) -> f32 {
    let lower = max(p.lower, 1u);
    let other = head - min(head, lower);
    let fours = select(2u * head + 2u, 2u * other + 1u, head >= lower);
    return select(exp2(-4.0 * f32(fours) / f32(lower)), 0.0, p.lower == 0u);
}

#if CAPPED
fn share_of_cap(s: vec4<f32>) -> vec4<f32> { return tanh_of_ratio(s, p.cap); }
#endif

// Scores of products of own rows and other rows, hidden where an own row does not see the other.
fn score(product: vec4<f32>, own: Band, other: vec4<u32>, slope: f32) -> vec4<f32> {
    var s = product * p.scale;
#if CAPPED
    s = p.cap * share_of_cap(s);
#endif
    s -= slope * abs(vec4<f32>(own.at) - vec4<f32>(other));
    return select(vec4(HIDDEN), s, (other >= own.start) & (other < own.end));
}

// The gradient of a score before it was capped.
fn bent(slope: vec4<f32>, product: vec4<f32>) -> vec4<f32> {
#if CAPPED
    let t = share_of_cap(product * p.scale);
    return slope * (1.0 - t * t);
#else
    return slope;
#endif
}

// e^(score - top), 0 where hidden.
fn weight(score: vec4<f32>, top: vec4<f32>) -> vec4<f32> {
    return select(exp4(score - top), vec4<f32>(), score <= vec4(HIDDEN));
}
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
@group(0) @binding(5) var<storage, read_write> stats: array<vec2<f32>>;

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
#if ATTENTION_DROPOUT
#import common/random
// Dropout. The random words are a function of (seed, step, key, row, column), so the backward pass draws the same ones.
// scalars [9]: graph::StepScalars
@group(0) @binding(8) var<storage, read_write> scalars: array<u32>;
const DROPOUT = true;

// The factors, 0 or 1 / (1 - p), of keys 4 quad to 4 quad + 3 in row (batch heads + head) rows + query.
fn kept(row: u32, quad: u32) -> vec4<f32> {
    let drawn = pcg4d(vec4(row, quad, scalars[3] ^ scalars[5], scalars[4] ^ (p.key * 0x9e3779b9u)));
    return select(vec4<f32>(), vec4(p.keep), drawn >= vec4(p.threshold));
}
#else
const DROPOUT = false;
fn kept(row: u32, quad: u32) -> vec4<f32> { return vec4(1.0); }
#endif
