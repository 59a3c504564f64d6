// Gradients of keys and values on CPU adapters: dv = Pᵀ do and dk = dSᵀ q with dS = scale P (dP - mean), dP = do vᵀ.
// q, k, v, do [b, rows, heads, d], stats [b, heads, rows, 2] -> dk, dv [b, cols, kv_heads, d]
// grid: one workgroup of 8 threads per 32 keys of a kv_head, folded
// requires: as attention/cpu
// A dispatch runs iterations `start` to `to` (exclusive) and adds to the results of the previous dispatch. Iteration
// (`part`) = head within the group * span + tile, from the first that its keys see.
#import common/nan
#import attention/operands
#import attention/scores
#import attention/tile

// `dots` of the own rows in `mine` and `gather` to the result `mine` in one loop, which loads the other rows once.
fn dots_and_gather(
    weight: Tile, theirs: u32, other: Fetched, mine: u32, own: vec4<u32>, before: vec4<f32>, inside: vec4<bool>,
) -> Tile {
    var t = Tile();
    for (var c = 0u; c < p.quads; c += 1u) {
        let x = transposed(
            source(mine, own.x + c), source(mine, own.y + c), source(mine, own.z + c), source(mine, own.w + c),
        );
        var sum = Quads(
            select(vec4<f32>(), result(mine, own.x + c) * before.x, before.x != 0.0),
            select(vec4<f32>(), result(mine, own.y + c) * before.y, before.y != 0.0),
            select(vec4<f32>(), result(mine, own.z + c) * before.z, before.z != 0.0),
            select(vec4<f32>(), result(mine, own.w + c) * before.w, before.w != 0.0),
        );
#repeat i 4
        let v$i = loaded(theirs, other.at[$i] + c, other.inside[$i]);
#repeat j $LANES
        t.p$i.s$j = dot4(subgroupBroadcast(v$i, $(j)u), x, t.p$i.s$j);
        sum = spread(weight.p$i.s$j, subgroupBroadcast(v$i, $(j)u), sum);
#endrepeat
#endrepeat
        if (inside.x) { set_result(mine, own.x + c, sum.r0); }
        if (inside.y) { set_result(mine, own.y + c, sum.r1); }
        if (inside.z) { set_result(mine, own.z + c, sum.r2); }
        if (inside.w) { set_result(mine, own.w + c, sum.r3); }
    }
    return t;
}

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
    let batch = job / p.tiles / p.kv_heads;
    let kv_head = job / p.tiles % p.kv_heads;
    let group = p.heads / p.kv_heads;
    let col0 = job % p.tiles * 32u;
    let quad = col0 / 4u + local.x;
    let col = vec4(quad * 4u) + vec4(0u, 1u, 2u, 3u);
    let inside = col < vec4(p.cols);
    let edge = min(col, vec4(p.cols - 1u));
    let k_row = k_base(batch, kv_head) + edge * p.kv_pitch;
    let v_row = v_base(batch, kv_head) + edge * p.kv_pitch;
    let queries = queries_of(batch, edge);
    let visible = tiles_seen(local.x, batch, col0, min(col0 + 31u, p.cols - 1u), TILE, p.rows);
    for (var part = p.start; part < p.to; part += 1u) {
        let tile = visible.x + part % p.span;
        if (tile >= visible.y) {
            continue;
        }
        let head = kv_head * group + part / p.span;
        let row = fetched(tile, lane, p.rows);
        let q_row = placed(row, q_base(batch, head), p.q_pitch);
        let o_row = placed(row, o_base(batch, head), p.o_pitch);
        let number = (batch * p.heads + head) * p.rows;
        let before = vec4(select(1.0, 0.0, part == 0u));
        let products = dots(K, k_row, Q, q_row);
        let s = scores(products, queries, tile, alibi_slope(head));
        let of_rows = stats_of(number + row.at);
        let t = weights_by(s, of_rows.lse);
        var thin = t;
        if (DROPOUT) {
            thin = thinned_by(t, number + tile * TILE, quad);
        }
        var d = dots_and_gather(thin, DY, o_row, V, v_row, before, inside);
        if (DROPOUT) {
            d = thinned_by(d, number + tile * TILE, quad);
        }
        let scale = score_factor(keys_of(batch, row.at));
        let slope = slopes_by(t, d, of_rows.mean, scale, products);
        gather(slope, Q, q_row, K, k_row, before, vec4(1.0), inside);
    }
}
