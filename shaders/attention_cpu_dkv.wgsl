// attention_cpu_dkv: dv = Pᵀ do and dk = dSᵀ q with dS = scale P (dP - mean), dP = do vᵀ, for CPU adapters     32 keys a workgroup
// q, k, v, do [b, rows, heads, d], stats [b, heads, rows, 2]  ->  dk, dv [b, cols, kv_heads, d]
// grid: see prelude/attention_params; overrides: none; requires: as attention_cpu
// A dispatch takes turns start to `to` and adds to what the one before left; turn = head of the group * tiles of queries + tile.
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
    let start = select(vec4<u32>(), edge, p.causal != 0u);
    let tiles = (p.rows + TILE - 1u) / TILE;
    // Earlier queries do not see these keys. The last tile is always taken, so that something is stored.
    let first = min(select(0u, col0 / TILE, p.causal != 0u), tiles - 1u);
    for (var turn = p.start; turn < p.to; turn += 1u) {
        let tile = turn % tiles;
        if (tile < first) {
            continue;
        }
        let head = kv_head * group + turn / tiles;
        let row = fetched(tile, lane, p.rows);
        let q_row = q_base(batch, head) + row * p.q_pitch;
        let o_row = o_base(batch, head) + row * p.o_pitch;
        let number = (batch * p.heads + head) * p.rows;
        let s0 = stats[number + row.x];
        let s1 = stats[number + row.y];
        let s2 = stats[number + row.z];
        let s3 = stats[number + row.w];
        let before = vec4(select(1.0, 0.0, turn == first));
        let scores = seen(dots(K, k_row, Q, q_row), tile, start, vec4(p.rows));
        let t = weights_by(scores, vec4(s0.x, s1.x, s2.x, s3.x));
        var d = dots(V, v_row, DY, o_row);
        if (DROPOUT) {
            d = thinned_by(d, number + tile * TILE, quad);
            gather(thinned_by(t, number + tile * TILE, quad), DY, o_row, V, v_row, before, vec4(1.0), inside);
        } else {
            gather(t, DY, o_row, V, v_row, before, vec4(1.0), inside);
        }
        let slope = slopes_by(t, d, vec4(s0.y, s1.y, s2.y, s3.y));
        gather(slope, Q, q_row, K, k_row, before, vec4(1.0), inside);
    }
}
