// Attention of new tokens and of those before them, whose keys and values are in a cache.
#import common/nan
struct Params {
    // Workgroups: `parts` for each query of a head, `jobs` in all, folded: job = wg.y * grid_x + wg.x.
    parts: u32, jobs: u32, grid_x: u32, heads: u32, kv_heads: u32,
    // New tokens; tokens of a page, pages of a text, pages of a cache; vec4 of a head.
    rows: u32, page: u32, table: u32, pages: u32, quads: u32,
    // A query sees the `before` keys before its own. A part has `span` keys.
    before: u32, span: u32,
    // A cap above 0: a score is cap tanh(score / cap).
    scale: f32, cap: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
#if JOIN
// cached_attention_join: the result of a query from those of its parts
// parts as attention/cached writes them -> o [b, s, h, d]
// grid: one workgroup of 64 threads per query of a head, folded
@group(0) @binding(1) var<storage, read_write> parts: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> o: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let query = wg.y * p.grid_x + wg.x;
    if (query >= p.jobs / p.parts || thread >= p.quads) {
        return;
    }
    let pitch = p.quads + 1u;
    let first = query * p.parts * pitch;
    var top = parts[first + p.quads].x;
    for (var part = 1u; part < p.parts; part += 1u) {
        top = max(top, parts[first + part * pitch + p.quads].x);
    }
    var result = vec4<f32>();
    var total = 0.0;
    for (var part = 0u; part < p.parts; part += 1u) {
        let at = first + part * pitch;
        let factor = exp1(parts[at + p.quads].x - top);
        result += factor * parts[at + thread];
        total += factor * parts[at + p.quads].y;
    }
    o[query * p.quads + thread] = result / total;
}
#else
// cached_attention: o = softmax(scale q kᵀ) v over the rows of the cache and the new ones up to the query's own. The new
// rows are stored into the cache; no query reads them there.
// q [b, s, h, d], k, v [b, s, hkv, d], cached k, v [pages, page, hkv, d], table [b, n], used [b] -> o, or for each part the
// weighted sum of values, and the largest score with the sum of weights
// grid: one workgroup of 64 threads per part of a query of a head, folded
#import attention/cache
@group(0) @binding(1) var<storage, read_write> q: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> table: array<u32>;
@group(0) @binding(7) var<storage, read_write> used: array<u32>;
@group(0) @binding(8) var<storage, read_write> result: array<vec4<f32>>;

const HIDDEN = -3e38; // Below all scores.
const TILE = 64u;
// The query, and sums of the threads.
var<workgroup> held: array<vec4<f32>, 64>;
var<workgroup> scores: array<f32, 64>;
var<workgroup> weights: array<f32, 64>;
// Where the keys and values of a tile begin.
var<workgroup> places: array<u32, 64>;
var<workgroup> cached: u32;

fn score(product: f32) -> f32 {
    let s = product * p.scale;
    return select(s, p.cap * tanh_of_ratio(vec4(s), p.cap).x, p.cap > 0.0);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let job = wg.y * p.grid_x + wg.x;
    if (job >= p.jobs) {
        return;
    }
    let part = job % p.parts;
    let query = job / p.parts;
    let head = query % p.heads;
    let row = query / p.heads % p.rows;
    let sample = query / p.heads / p.rows;
    let group = p.heads / p.kv_heads;
    let kv_head = head / group;
    if (thread == 0u) {
        cached = min(used[sample], p.table * p.page);
    }
    let before = workgroupUniformLoad(&cached);
    // Row i of keys and values begins at i pitch + start.
    let pitch = p.kv_heads * p.quads;
    let start = kv_head * p.quads;
    let new_base = sample * p.rows;
    let own = before + row;
    if (thread < p.quads) {
        held[thread] = q[query * p.quads + thread];
        // The first query head of a key head stores the new row.
        if (part == 0u && head % group == 0u && own < p.table * p.page) {
            let page = table[sample * p.table + own / p.page];
            if (page < p.pages) {
                let place = (page * p.page + own % p.page) * pitch + start + thread;
                store_quad(place, (new_base + row) * pitch + start + thread);
            }
        }
    }
    workgroupBarrier();
    // The keys of this part, `first` to `end` (exclusive) of those that the query sees.
    let first = own - min(own, p.before) + part * p.span;
    let end = min(first + p.span, own + 1u);
    let lanes = TILE / p.quads;
    let lane = thread / p.quads;
    let column = thread % p.quads;
    var top = HIDDEN;
    var total = 0.0;
    var sum = vec4<f32>();
    for (var done = 0u; done < p.span; done += TILE) {
        let tile = first + done;
        if (tile >= end) {
            break;
        }
        let j = tile + thread;
        var s = HIDDEN;
        if (j < end) {
            var dot4 = vec4<f32>();
            var at = (new_base + j - before) * pitch + start;
            if (j < before) {
                let page = min(table[sample * p.table + j / p.page], p.pages - 1u);
                at = (page * p.page + j % p.page) * pitch + start;
                for (var c = 0u; c < p.quads; c += 1u) {
                    dot4 = fma(held[c], key_at(at + c), dot4);
                }
            } else {
                for (var c = 0u; c < p.quads; c += 1u) {
                    dot4 = fma(held[c], k[at + c], dot4);
                }
            }
            places[thread] = at;
            s = score((dot4.x + dot4.y) + (dot4.z + dot4.w));
        }
        scores[thread] = s;
        workgroupBarrier();
        var highest = top;
        for (var i = 0u; i < TILE; i += 4u) {
            highest = max(highest, max(max(scores[i], scores[i + 1u]), max(scores[i + 2u], scores[i + 3u])));
        }
        let weight = select(0.0, exp1(s - highest), j < end);
        weights[thread] = weight;
        workgroupBarrier();
        let factor = exp1(top - highest);
        top = highest;
        total = total * factor + weight;
        sum *= factor;
        if (lane < lanes) {
            for (var i = lane; i < TILE; i += lanes) {
                let other = tile + i;
                if (other < before) {
                    sum = fma(vec4(weights[i]), value_at(places[i] + column), sum);
                } else if (other < end) {
                    sum = fma(vec4(weights[i]), v[places[i] + column], sum);
                }
            }
        }
        workgroupBarrier();
    }
    held[thread] = sum;
    weights[thread] = total;
    workgroupBarrier();
    if (thread < p.quads) {
        total = 0.0;
        for (var i = 0u; i < TILE; i += 1u) {
            total += weights[i];
        }
        sum = vec4<f32>();
        for (var i = 0u; i < lanes; i += 1u) {
            sum += held[i * p.quads + thread];
        }
        if (p.parts == 1u) {
            result[query * p.quads + thread] = sum / total;
        } else {
            let at = job * (p.quads + 1u);
            result[at + thread] = sum;
            if (thread == 0u) {
                result[at + p.quads] = vec4(top, total, 0.0, 0.0);
            }
        }
    }
}
#endif
