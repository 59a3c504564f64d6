// Attention on CPU adapters, without workgroup memory but for documents: o = softmax(scale q kᵀ) v, and lse, the logarithm of the sum of
// exponentials of each row of scores. With DQ the gradient of the queries: dq = dS k with dS = scale P (dP - mean), dP = do vᵀ.
// q [b, rows, heads, d], k, v [b, cols, kv_heads, d] -> o [b, rows, heads, d], lse [b, heads, rows]
// DQ: q, k, v, do [b, rows, heads, d], stats [b, heads, rows, 2] -> dq [b, rows, heads, d]
// grid: one workgroup of 8 threads per 32 queries of a head, folded; a thread owns four queries
// requires: d % 4 == 0; subgroups of at least LANES
// A dispatch processes the tiles of keys `start` to `to` (exclusive) of those that its queries see, and
// continues from the o and lse, or the dq, of the previous dispatch: lavapipe ends a thread's loops after 65,535 iterations.
#import common/nan
#import attention/operands
#import attention/scores
#import attention/tile

@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let job = wg.y * p.grid_x + wg.x;
    if (job >= p.jobs) {
        return;
    }
    let batch = job / p.tiles / p.heads;
    let head = job / p.tiles % p.heads;
    let kv_head = head / (p.heads / p.kv_heads);
    let row0 = job % p.tiles * 32u;
    let row = vec4(row0 + local.x * 4u) + vec4(0u, 1u, 2u, 3u);
    let inside = row < vec4(p.rows);
    let edge = min(row, vec4(p.rows - 1u));
    let q_row = q_base(batch, head) + edge * p.q_pitch;
    let o_row = o_base(batch, head) + edge * p.o_pitch;
    let number = vec4((batch * p.heads + head) * p.rows) + edge;
    let keys = keys_of(batch, edge);
    let slope = alibi_slope(head);
    let visible = tiles_seen(local.x, batch, row0, min(row0 + 31u, p.rows - 1u), TILE, p.cols);
    let to = min(visible.x + p.to, visible.y);
#if DQ
    let of_rows = stats_of(number);
    let scale = score_factor(keys);
    for (var tile = visible.x + p.start; tile < to; tile += 1u) {
        let col = fetched(tile, lane, p.cols);
        let k_row = placed(col, k_base(batch, kv_head), p.kv_pitch);
        let v_row = placed(col, v_base(batch, kv_head), p.kv_pitch);
        var d = dots(DY, o_row, V, v_row);
        if (DROPOUT) {
            d = thinned(d, number, tile);
        }
        let products = dots(Q, q_row, K, k_row);
        let t = weights(scores(products, keys, tile, slope), of_rows.lse);
        let before = vec4(select(1.0, 0.0, tile == visible.x));
        gather(slopes(t, d, of_rows.mean, scale, products), K, k_row, Q, q_row, before, vec4(1.0), inside);
    }
#else
    if (visible.x + p.start >= to) {
        return;
    }
    // A row may see nothing of the first tiles: the first dispatch goes on to those that it sees.
    var best = vec4(HIDDEN);
    var sum = vec4<f32>();
    if (p.start > 0u) {
        best = vec4(lse[number.x], lse[number.y], lse[number.z], lse[number.w]);
        sum = vec4(1.0);
    }
    for (var tile = visible.x + p.start; tile < to; tile += 1u) {
        let col = fetched(tile, lane, p.cols);
        let k_row = placed(col, k_base(batch, kv_head), p.kv_pitch);
        let v_row = placed(col, v_base(batch, kv_head), p.kv_pitch);
        var t = scores(dots(Q, q_row, K, k_row), keys, tile, slope);
        let higher = top(t, best);
        let before = weight(best, higher);
        t = weights(t, higher);
        best = higher;
        sum = total(t, sum * before);
        if (DROPOUT) {
            t = thinned(t, number, tile);
        }
        let after = select(vec4(1.0), 1.0 / sum, tile + 1u == to);
        gather(t, V, v_row, 0u, o_row, before, after, inside);
    }
    let value = best + log4(sum);
    if (inside.x) { lse[number.x] = value.x; }
    if (inside.y) { lse[number.y] = value.y; }
    if (inside.z) { lse[number.z] = value.z; }
    if (inside.w) { lse[number.w] = value.w; }
#endif
}
