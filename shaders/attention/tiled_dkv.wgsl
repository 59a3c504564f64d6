// Gradients of keys and values on GPUs: dv = Pᵀ do and dk = dSᵀ q with dS = scale P (dP - mean), dP = do vᵀ.
// q, k, v, do [b, rows, heads, d], stats [b, heads, rows, 2] -> dk, dv [b, cols, kv_heads, d]
// grid: one workgroup of 64 threads per 64 keys of a kv_head, folded
// requires: as attention/tiled
// A dispatch runs iterations `start` to `to` (exclusive) and adds to the results of the previous dispatch. Iteration
// (`part`) = head within the group * span + tile, from the first that its keys see.
#import common/nan
#import attention/operands
#import attention/scores
#import attention/tiles

fn weight_of(s: vec4<f32>, batch: u32, row: vec4<u32>, col: u32, bias: f32, lse: vec4<f32>) -> vec4<f32> {
    return weight(score(s, queries_of(batch, vec4(min(col, p.cols - 1u))), row, bias), lse);
}

fn factors(row: u32, quad: u32) -> Quads {
    return transposed(kept(row, quad), kept(row + 1u, quad), kept(row + 2u, quad), kept(row + 3u, quad));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let job = wg.y * p.grid_x + wg.x;
    if (job >= p.jobs) {
        return;
    }
    let batch = job / p.tiles / p.kv_heads;
    let kv_head = job / p.tiles % p.kv_heads;
    let group = p.heads / p.kv_heads;
    let col0 = job % p.tiles * OWN;
    let keys = Rows(K, k_base(batch, kv_head), p.kv_pitch, p.cols);
    let values = Rows(V, v_base(batch, kv_head), p.kv_pitch, p.cols);
    let visible = tiles_seen(thread, batch, col0, min(col0 + OWN - 1u, p.cols - 1u), TILE, p.rows);
    let col = col0 + thread / 8u * 4u;
    var dk_sums = Sums();
    var dv_sums = Sums();
    for (var part = p.start; part < p.to; part += 1u) {
        let tile = visible.x + part % p.span;
        if (tile >= visible.y) {
            continue;
        }
        let head = kv_head * group + part / p.span;
        let bias = alibi_slope(head);
        let queries = Rows(Q, q_base(batch, head), p.q_pitch, p.rows);
        let outer = Rows(DY, o_base(batch, head), p.o_pitch, p.rows);
        let number = (batch * p.heads + head) * p.rows;
        let before = same(select(1.0, 0.0, part == 0u));
        let row = vec4(tile * TILE + thread % 8u * 4u) + vec4(0u, 1u, 2u, 3u);
        let of_rows = stats_of(number + min(row, vec4(p.rows - 1u)));
        let s = dots(thread, keys, col0, queries, tile * TILE);
        let w = Micro(
#repeat i 8
            weight_of(s.r$i, batch, row, col + $(i / 4 * 32 + i % 4)u, bias, of_rows.lse),
#endrepeat
        );
        let d = dots(thread, values, col0, outer, tile * TILE);
        let scale = score_factor(keys_of(batch, row));
        let a = factors(number + row.x, col / 4u);
        let b = factors(number + row.x, col / 4u + 8u);
        hold(thread, Micro(
            w.r0 * a.r0, w.r1 * a.r1, w.r2 * a.r2, w.r3 * a.r3, w.r4 * b.r0, w.r5 * b.r1, w.r6 * b.r2, w.r7 * b.r3,
        ));
        if (CHUNKS == 0u) {
            gather(thread, outer, tile * TILE, values, col0, before, same(1.0));
        } else {
            dv_sums = gathered(thread, outer, tile * TILE, 0u, dv_sums);
        }
        hold(thread, Micro(
            bent(w.r0 * (d.r0 * a.r0 - of_rows.mean) * scale, s.r0),
            bent(w.r1 * (d.r1 * a.r1 - of_rows.mean) * scale, s.r1),
            bent(w.r2 * (d.r2 * a.r2 - of_rows.mean) * scale, s.r2),
            bent(w.r3 * (d.r3 * a.r3 - of_rows.mean) * scale, s.r3),
            bent(w.r4 * (d.r4 * b.r0 - of_rows.mean) * scale, s.r4),
            bent(w.r5 * (d.r5 * b.r1 - of_rows.mean) * scale, s.r5),
            bent(w.r6 * (d.r6 * b.r2 - of_rows.mean) * scale, s.r6),
            bent(w.r7 * (d.r7 * b.r3 - of_rows.mean) * scale, s.r7),
        ));
        if (CHUNKS == 0u) {
            gather(thread, queries, tile * TILE, keys, col0, before, same(1.0));
        } else {
            dk_sums = gathered(thread, queries, tile * TILE, 0u, dk_sums);
        }
    }
    if (CHUNKS > 0u) {
        let before = same(select(1.0, 0.0, p.start == 0u));
        put(thread, values, col0, 0u, dv_sums, before, same(1.0));
        put(thread, keys, col0, 0u, dk_sums, before, same(1.0));
    }
}
