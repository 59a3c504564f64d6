// Which keys a query sees, and the score of a query with a key. Within documents a dispatch may see no key of a row: the next one
// then begins with a weight of 0 for what is stored.

// The score of a key that a query does not see: below all others.
const HIDDEN = -3e38;

#if DOCUMENTS
// Where the document of a key starts and ends (exclusive) among the keys: the key itself is always within.
fn document(batch: u32, key: u32) -> vec2<u32> {
    let at = batch * p.cols + min(key, p.cols - 1u);
#if FORWARD
    let ends = documents[at];
#else
    let ends = vec2<u32>(stats[p.samples * p.heads * p.rows + at]);
#endif
    return vec2(min(ends.x, key), max(ends.y, key + 1u));
}

// Where the document of a key starts and ends among the queries, or of a query among the keys.
fn document_of(batch: u32, at: u32, is_key: bool) -> vec2<u32> {
    if (is_key) {
        let ends = document(batch, at);
        return ends - min(ends, vec2(p.offset));
    }
    return document(batch, at + p.offset);
}
#endif

// Rows of one side and which rows of the other side each sees, `start` to `end` (exclusive): graph::Band, within documents.
struct Band { at: vec4<u32>, start: vec4<u32>, end: vec4<u32>, }

fn band(batch: u32, at: vec4<u32>, is_key: bool, before: u32, after: u32, count: u32) -> Band {
    let start = at - min(at, vec4(before));
    let end = min(at + vec4(after + 1u), vec4(count));
#if DOCUMENTS
    let x = document_of(batch, at.x, is_key);
    var y = x;
    var z = x;
    var w = x;
    // Compilers see where a row is given four times.
    if (any(at != at.xxxx)) {
        y = document_of(batch, at.y, is_key);
        z = document_of(batch, at.z, is_key);
        w = document_of(batch, at.w, is_key);
    }
    return Band(at, max(start, vec4(x.x, y.x, z.x, w.x)), min(end, vec4(x.y, y.y, z.y, w.y)));
#else
    return Band(at, start, end);
#endif
}
#if DKV
fn queries_of(batch: u32, col: vec4<u32>) -> Band { return band(batch, col, true, p.before, p.after, p.rows); }

fn keys_of(batch: u32, row: vec4<u32>) -> Band { return band(batch, row, false, p.after, p.before, p.cols); }
#else
fn keys_of(batch: u32, row: vec4<u32>) -> Band { return band(batch, row, false, p.before, p.after, p.cols); }
#endif

// The factor of a query's gradients of scores. The weight of its only key is 1 whatever the score: the gradient is 0, without
// rounding errors.
fn score_factor(keys: Band) -> vec4<f32> {
    return select(vec4(p.scale), vec4<f32>(), keys.end - keys.start == vec4(1u));
}

#if DOCUMENTS
#if DKV
const OWN_KEYS = true;
#else
const OWN_KEYS = false;
#endif
// Read by one thread, so that all threads run the same iterations.
var<workgroup> seen: vec2<u32>;
#endif

// The tiles of `tile` other rows, of `count` in all, that own rows `row` to `last` see: x to y (exclusive), at least one.
fn tiles_seen(thread: u32, batch: u32, row: u32, last: u32, tile: u32, count: u32) -> vec2<u32> {
    var start = row - min(row, p.before);
    var end = min(last + p.after + 1u, count);
#if DOCUMENTS
    if (thread == 0u) {
        seen = vec2(max(start, document_of(batch, row, OWN_KEYS).x), min(end, document_of(batch, last, OWN_KEYS).y));
    }
    let within = workgroupUniformLoad(&seen);
    start = within.x;
    end = within.y;
#endif
    let first = min(start / tile, (count - 1u) / tile);
    return vec2(first, max((end + tile - 1u) / tile, first + 1u));
}

// ALiBi: scores fall by the slope of their head, graph::Attend::slope, times the distance of query and key.
fn alibi_slope(own_head: u32) -> f32 {
    let head = p.first_head + own_head;
    let lower = max(p.lower, 1u);
    let other = head - min(head, lower);
    let exponent = select(2u * head + 2u, 2u * other + 1u, head >= lower);
    return select(exp2(-4.0 * f32(exponent) / f32(lower)), 0.0, p.lower == 0u);
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
