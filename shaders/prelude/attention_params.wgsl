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
