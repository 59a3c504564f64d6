// Cross-entropy of rows; with LABEL_SHARE the share of each label in a mean.
#if LABEL_SHARE
#import common/grid
// label_share: y = 1 / max(1, how many labels are not IGNORE (2^32 - 1)); of many labels one launch counts those of each chunk,
// and a second adds the counts
// x [n] u32 labels, or counts -> y [chunks] counts as u32; of one chunk the share, as f32
// grid: one thread per chunk, folded      overrides: none
struct Params {
    threads_x: u32,
    n: u32,
    chunk: u32,
    chunks: u32,
    counts: u32, // whether x are counts
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.chunks) {
        return;
    }
    var counted = 0u;
    for (var l = i * p.chunk; l < min((i + 1u) * p.chunk, p.n); l++) {
        counted += select(select(1u, 0u, x[l] == 0xffffffffu), x[l], p.counts == 1u);
    }
    y[i] = select(counted, bitcast<u32>(1.0 / f32(max(counted, 1u))), p.chunks == 1u);
}
#elif WORKGROUP
#import common/nan
#import common/jobs
// Below every finite x, so that a difference to it is never infinity minus infinity.
const LOWEST = -0x1.fffffep+127;

// cross_entropy_wg: lse = (max, ln Σ e^(x - max)), loss = max - x[label] + ln Σ e^(x - max), 0 where the label is IGNORE (2^32 - 1); for GPUs
// x [rows, cols], labels [rows] u32 -> loss [rows], lse [rows, 2]
// grid: one workgroup per row, folded: row = wg.y * groups_x + wg.x      overrides: none
struct Params {
    groups_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> labels: array<u32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<vec2<f32>>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wg.y * p.groups_x + wg.x;
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let end = start + p.cols;
    // Maximum and sum in one reading: the sum so far is rescaled where the maximum grows.
    var own = LOWEST;
    var sum = 0.0;
    for (var i = start + lane; i < end; i += GROUP) {
        let highest = max(own, x[i]);
        sum = sum * exp1(own - highest) + exp1(x[i] - highest);
        own = highest;
    }
    let top = group_max(lane, own);
    let rest = log1(group_sum(lane, sum * exp1(own - top)));
    if (lane == 0u) {
        let label = labels[row];
        lse[row] = vec2(top, rest);
        // The host refuses labels out of range; the bound keeps a stray one inside the row.
        loss[row] = select(top - x[start + min(label, p.cols - 1u)] + rest, 0.0, label == 0xffffffffu);
    }
}
#else
#import common/grid
#import common/elem
#import common/nan

// The maximum of a row and Σ e^(x - maximum) in one reading: the sum so far is rescaled where the maximum grows.
// Below every finite x, so that a difference to it is never infinity minus infinity.
const LOWEST = -0x1.fffffep+127;
struct Seen {
    top: f32,
    sums: vec4<f32>,
}

fn highest_of(v: vec4<f32>) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }

// Four elements, some of them perhaps not of this row.
fn see(seen: Seen, v: vec4<f32>, inside: vec4<bool>) -> Seen {
    let top = max(seen.top, highest_of(select(vec4(LOWEST), v, inside)));
    return Seen(top, seen.sums * exp(seen.top - top) + select(vec4<f32>(), exp4(v - top), inside));
}

fn see16(seen: Seen, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> Seen {
    let top = max(seen.top, highest_of(max(max(a, b), max(c, d))));
    let own = (exp4(a - top) + exp4(b - top)) + (exp4(c - top) + exp4(d - top));
    return Seen(top, seen.sums * exp(seen.top - top) + own);
}

// cross_entropy: lse = (max, ln Σ e^(x - max)), loss = max - x[label] + ln Σ e^(x - max), 0 where the label is IGNORE (2^32 - 1)
// x [rows, cols], labels [rows] u32 -> loss [rows], lse [rows, 2]
// grid: one thread per row, folded      overrides: none
// Rows of up to a million columns: lavapipe ends a thread's loops after 65,535 iterations without an error.
struct Params {
    threads_x: u32,
    rows: u32,
    cols: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<InMemory>;
@group(0) @binding(2) var<storage, read_write> labels: array<u32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
@group(0) @binding(4) var<storage, read_write> lse: array<vec2<f32>>;

fn x_at(i: u32) -> Elem { return from_memory(x[i]); }

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = thread_number(id, p.threads_x);
    if (row >= p.rows) {
        return;
    }
    // A row may begin and end within four elements that it shares with its neighbours.
    let start = row * p.cols;
    let end = start + p.cols;
    let order = vec4(0u, 1u, 2u, 3u);
    var q = start / 4u;
    let last = (end - 1u) / 4u;
    var at = 4u * q + order;
    var seen = see(Seen(LOWEST, vec4<f32>()), x_at(q), (at >= vec4(start)) & (at < vec4(end)));
    q++;
    for (; q + 4u <= last; q += 4u) {
        seen = see16(seen, x_at(q), x_at(q + 1u), x_at(q + 2u), x_at(q + 3u));
    }
    for (; q <= last; q++) {
        at = 4u * q + order;
        seen = see(seen, x_at(q), at < vec4(end));
    }
    let rest = log1((seen.sums.x + seen.sums.y) + (seen.sums.z + seen.sums.w));
    lse[row] = vec2(seen.top, rest);
    let label = labels[row];
    // The host refuses labels out of range; the bound keeps a stray one inside the row.
    let place = start + min(label, p.cols - 1u);
    loss[row] = select(seen.top - x_at(place / 4u)[place % 4u] + rest, 0.0, label == 0xffffffffu);
}
#endif
