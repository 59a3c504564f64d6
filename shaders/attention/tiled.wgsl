// Attention on GPUs: o = softmax(scale q kᵀ) v, and lse, the logarithm of the sum of exponentials of each row of scores.
// With DQ the gradient of the queries: dq = dS k with dS = scale P (dP - mean), dP = do vᵀ. Shapes as in attention/cpu.
// grid: one workgroup of 64 threads per 64 queries of a head, folded
// requires: d % 4 == 0; the workgroup memory of attention/tiles
// A dispatch processes the tiles of keys `start` to `to` (exclusive) of those that its queries see, and
// continues from the o and lse, or the dq, of the previous dispatch.
#import common/nan
#import attention/operands
#import attention/scores
#import attention/tiles
#if DQ

fn slope(
    s: vec4<f32>, d: vec4<f32>, batch: u32, row: u32, number: u32, tile: u32, x: u32, bias: f32,
) -> vec4<f32> {
    let edge = min(row, p.rows - 1u);
    let stat = stats[number + edge];
    let keys = keys_of(batch, vec4(edge));
    let col = vec4(tile * TILE + x * 4u) + vec4(0u, 1u, 2u, 3u);
    let keep = kept(number + row, tile * (TILE / 4u) + x);
    return bent(weight(score(s, keys, col, bias), vec4(stat.x)) * (d * keep - stat.y) * score_factor(keys), s);
}
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let job = wg.y * p.grid_x + wg.x;
    if (job >= p.jobs) {
        return;
    }
    let batch = job / p.tiles / p.heads;
    let head = job / p.tiles % p.heads;
    let kv_head = head / (p.heads / p.kv_heads);
    // Causal queries see most keys in the last tiles: with these first, no long workgroup starts last.
    let row0 = (p.tiles - 1u - job % p.tiles) * OWN;
    let queries = Rows(Q, q_base(batch, head), p.q_pitch, p.rows);
    let keys = Rows(K, k_base(batch, kv_head), p.kv_pitch, p.cols);
    let values = Rows(V, v_base(batch, kv_head), p.kv_pitch, p.cols);
#if DQ
    let outer = Rows(DY, o_base(batch, head), p.o_pitch, p.rows);
#else
    let results = Rows(0u, o_base(batch, head), p.o_pitch, p.rows);
#endif
    let number = (batch * p.heads + head) * p.rows;
    let bias = alibi_slope(head);
    let visible = tiles_seen(thread, batch, row0, min(row0 + OWN - 1u, p.rows - 1u), TILE, p.cols);
    let start = visible.x + p.start;
    let to = min(visible.x + p.to, visible.y);
    let x = thread % 8u;
    var chunk0 = Sums();
    var chunk1 = Sums();
#if DQ
    let row = row0 + thread / 8u * 4u;
    for (var tile = start; tile < to; tile += 1u) {
        let s = dots(thread, queries, row0, keys, tile * TILE);
        let d = dots(thread, outer, row0, values, tile * TILE);
        let slopes = Micro(
#repeat i 8
            slope(s.r$i, d.r$i, batch, row + $(i / 4 * 32 + i % 4)u, number, tile, x, bias),
#endrepeat
        );
        hold(thread, slopes);
        if (CHUNKS == 0u) {
            gather(thread, keys, tile * TILE, queries, row0, same(select(1.0, 0.0, tile == visible.x)), same(1.0));
        } else {
            chunk0 = gathered(thread, keys, tile * TILE, 0u, chunk0);
        }
        if (CHUNKS == 2u) {
            chunk1 = gathered(thread, keys, tile * TILE, 16u, chunk1);
        }
    }
    let first = same(select(1.0, 0.0, p.start == 0u));
    if (CHUNKS > 0u) {
        put(thread, queries, row0, 0u, chunk0, first, same(1.0));
    }
    if (CHUNKS == 2u) {
        put(thread, queries, row0, 16u, chunk1, first, same(1.0));
    }
#else
    let y = thread / 8u;
    // In the softmax a thread owns rows 4 `four` to 4 `four` + 3 and eight of the keys; four threads share these rows.
    let four = thread % 16u;
    let eight = thread / 16u;
    let mine = vec4(row0 + four * 4u) + vec4(0u, 1u, 2u, 3u);
    let at = number + min(mine, vec4(p.rows - 1u));
    var best = vec4(HIDDEN);
    var sum = vec4<f32>();
    if (p.start > 0u) {
        best = vec4(lse[at.x], lse[at.y], lse[at.z], lse[at.w]);
        sum = vec4(1.0);
    }
    let known = best;
    // A row may see nothing of the first tiles: the first dispatch goes on to those that it sees.
    for (var tile = start; tile < to; tile += 1u) {
        var m = dots(thread, queries, row0, keys, tile * TILE);
        let col = vec4(tile * TILE + x * 4u) + vec4(0u, 1u, 2u, 3u);
        let row = row0 + y * 4u;
        m = Micro(
#repeat i 8
            score(m.r$i, keys_of(batch, vec4(min(row + $(i / 4 * 32 + i % 4)u, p.rows - 1u))), col, bias),
#endrepeat
        );
        hold(thread, m);
        let first = eight * 8u;
        var higher = held[first * PITCH + four];
        for (var j = first + 1u; j < first + 8u; j += 1u) {
            higher = max(higher, held[j * PITCH + four]);
        }
        near[eight * 16u + four] = higher;
        workgroupBarrier();
        higher = max(max(near[four], near[16u + four]), max(near[32u + four], near[48u + four]));
        higher = max(higher, best);
        let before = weight(best, higher);
        best = higher;
        var part = vec4<f32>();
        for (var j = first; j < first + 8u; j += 4u) {
            let w = Quads(
                weight(held[j * PITCH + four], best), weight(held[(j + 1u) * PITCH + four], best),
                weight(held[(j + 2u) * PITCH + four], best), weight(held[(j + 3u) * PITCH + four], best),
            );
            part += w.r0 + w.r1 + w.r2 + w.r3;
            let quad = tile * (TILE / 4u) + j / 4u;
            let keep = transposed(kept(at.x, quad), kept(at.y, quad), kept(at.z, quad), kept(at.w, quad));
            held[j * PITCH + four] = w.r0 * keep.r0;
            held[(j + 1u) * PITCH + four] = w.r1 * keep.r1;
            held[(j + 2u) * PITCH + four] = w.r2 * keep.r2;
            held[(j + 3u) * PITCH + four] = w.r3 * keep.r3;
        }
        near[64u + eight * 16u + four] = part;
        workgroupBarrier();
        sum = sum * before + ((near[64u + four] + near[80u + four]) + (near[96u + four] + near[112u + four]));
        if (eight == 0u) {
            near[128u + four] = before;
            near[144u + four] = select(vec4(1.0), 1.0 / sum, tile + 1u == to);
        }
        workgroupBarrier();
        let factors = Numbers(near[128u + y], near[136u + y]);
        if (CHUNKS == 0u) {
            gather(thread, values, tile * TILE, results, row0, factors, Numbers(near[144u + y], near[152u + y]));
        } else {
            chunk0 = gathered(thread, values, tile * TILE, 0u, scaled(chunk0, factors));
        }
        if (CHUNKS == 2u) {
            chunk1 = gathered(thread, values, tile * TILE, 16u, scaled(chunk1, factors));
        }
    }
    if (CHUNKS > 0u && start < to) {
        // What a dispatch before has stored counts by its weight.
        workgroupBarrier();
        if (eight == 0u) {
            near[128u + four] = select(vec4<f32>(), weight(known, best), p.start > 0u);
            near[144u + four] = 1.0 / sum;
        }
        workgroupBarrier();
        let factors = Numbers(near[128u + y], near[136u + y]);
        let after = Numbers(near[144u + y], near[152u + y]);
        put(thread, results, row0, 0u, chunk0, factors, after);
        if (CHUNKS == 2u) {
            put(thread, results, row0, 16u, chunk1, factors, after);
        }
    }
    if (eight == 0u && start < to) {
        let value = best + log4(sum);
        if (mine.x < p.rows) { lse[at.x] = value.x; }
        if (mine.y < p.rows) { lse[at.y] = value.y; }
        if (mine.z < p.rows) { lse[at.z] = value.z; }
        if (mine.w < p.rows) { lse[at.w] = value.w; }
    }
#endif
}
