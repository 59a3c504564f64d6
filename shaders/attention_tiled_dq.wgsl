// attention_tiled_dq: dq = dS k with dS = scale P (dP - mean), dP = do vᵀ, for GPUs     64 queries a workgroup of 64 threads
// q, k, v, do [b, rows, heads, d], stats [b, heads, rows, 2]  ->  dq [b, rows, heads, d]
// grid: see prelude/attention_params; overrides: none; requires: as attention_tiled
// A dispatch takes keys of tiles start to `to` and adds to the dq that the one before left.
fn slope(
    s: vec4<f32>, d: vec4<f32>, row: u32, number: u32, tile: u32, x: u32,
) -> vec4<f32> {
    let stat = stats[number + min(row, p.rows - 1u)];
    let end = select(p.cols, min(row + 1u, p.cols), p.causal != 0u);
    let col = vec4(tile * TILE + x * 4u) + vec4(0u, 1u, 2u, 3u);
    let keep = kept(number + row, tile * (TILE / 4u) + x);
    // The weight of a row's only key is 1 whatever its score: no slope, not even rounding errors.
    let scale = select(p.scale, 0.0, end == 1u);
    return weight(seen(s, col, 0u, end), vec4(stat.x)) * (d * keep - stat.y) * scale;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let job = wg.y * p.grid_x + wg.x;
    if (job >= p.jobs) {
        return;
    }
    let batch = job / p.tiles / p.heads;
    let head = job / p.tiles % p.heads;
    let kv_head = head / (p.heads / p.kv_heads);
    let row0 = job % p.tiles * OWN;
    let queries = Rows(Q, q_base(batch, head), p.q_pitch, p.rows);
    let keys = Rows(K, k_base(batch, kv_head), p.kv_pitch, p.cols);
    let values = Rows(V, v_base(batch, kv_head), p.kv_pitch, p.cols);
    let outer = Rows(DY, o_base(batch, head), p.o_pitch, p.rows);
    let number = (batch * p.heads + head) * p.rows;
    // Further keys are hidden from the whole workgroup.
    let last = select(p.cols, min(min(row0 + OWN, p.rows), p.cols), p.causal != 0u);
    let to = min(p.to, (last + TILE - 1u) / TILE);
    let x = thread % 8u;
    let row = row0 + thread / 8u * 4u;
    for (var tile = p.start; tile < to; tile += 1u) {
        let s = dots(thread, queries, row0, keys, tile * TILE);
        let d = dots(thread, outer, row0, values, tile * TILE);
        let slopes = Micro(
            slope(s.r0, d.r0, row, number, tile, x), slope(s.r1, d.r1, row + 1u, number, tile, x),
            slope(s.r2, d.r2, row + 2u, number, tile, x), slope(s.r3, d.r3, row + 3u, number, tile, x),
            slope(s.r4, d.r4, row + 32u, number, tile, x), slope(s.r5, d.r5, row + 33u, number, tile, x),
            slope(s.r6, d.r6, row + 34u, number, tile, x), slope(s.r7, d.r7, row + 35u, number, tile, x),
        );
        hold(thread, slopes);
        gather(thread, keys, tile * TILE, queries, row0, select(1.0, 0.0, tile == 0u), false);
    }
}
