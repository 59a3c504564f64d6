// Tiles of scores on CPU adapters: four own rows of each thread against four parts of the others' rows. Own rows and those
// of the others past the end repeat the last one; they are hidden, or not stored.
const TILE = 4u * LANES;

struct Tile { a: Part, b: Part, c: Part, d: Part, }

fn transposed(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> Quads {
    return Quads(
        vec4(a.x, b.x, c.x, d.x), vec4(a.y, b.y, c.y, d.y),
        vec4(a.z, b.z, c.z, d.z), vec4(a.w, b.w, c.w, d.w),
    );
}

// Products of own rows at `own` in `mine` with the others' rows, this lane's at `other` in `theirs`.
fn dots(mine: u32, own: vec4<u32>, theirs: u32, other: vec4<u32>) -> Tile {
    var t = Tile();
    for (var c = 0u; c < p.quads; c += 1u) {
        let x = transposed(
            source(mine, own.x + c), source(mine, own.y + c), source(mine, own.z + c), source(mine, own.w + c),
        );
        t.a = part_dots(t.a, source(theirs, other.x + c), x);
        t.b = part_dots(t.b, source(theirs, other.y + c), x);
        t.c = part_dots(t.c, source(theirs, other.z + c), x);
        t.d = part_dots(t.d, source(theirs, other.w + c), x);
    }
    return t;
}

// Own rows of a result: what is there times `before` (nothing where that is 0: memory may be dirty), plus the others' rows
// with the tile as weights, all times `after`.
fn gather(
    t: Tile, theirs: u32, other: vec4<u32>, to: u32, own: vec4<u32>, before: vec4<f32>, after: vec4<f32>,
    inside: vec4<bool>,
) {
    for (var c = 0u; c < p.quads; c += 1u) {
        var sum = Quads(
            select(vec4<f32>(), result(to, own.x + c) * before.x, before.x != 0.0),
            select(vec4<f32>(), result(to, own.y + c) * before.y, before.y != 0.0),
            select(vec4<f32>(), result(to, own.z + c) * before.z, before.z != 0.0),
            select(vec4<f32>(), result(to, own.w + c) * before.w, before.w != 0.0),
        );
        sum = part_sums(t.a, source(theirs, other.x + c), sum);
        sum = part_sums(t.b, source(theirs, other.y + c), sum);
        sum = part_sums(t.c, source(theirs, other.z + c), sum);
        sum = part_sums(t.d, source(theirs, other.w + c), sum);
        if (inside.x) { set_result(to, own.x + c, sum.r0 * after.x); }
        if (inside.y) { set_result(to, own.y + c, sum.r1 * after.y); }
        if (inside.z) { set_result(to, own.z + c, sum.r2 * after.z); }
        if (inside.w) { set_result(to, own.w + c, sum.r3 * after.w); }
    }
}

// The others' rows that this lane fetches, one for each part.
fn fetched(tile: u32, lane: u32, count: u32) -> vec4<u32> {
    return min(vec4(tile * TILE + lane % LANES) + vec4(0u, 1u, 2u, 3u) * LANES, vec4(count - 1u));
}

fn seen(t: Tile, tile: u32, start: vec4<u32>, end: vec4<u32>) -> Tile {
    let at = tile * TILE;
    return Tile(
        part_seen(t.a, at, start, end), part_seen(t.b, at + LANES, start, end),
        part_seen(t.c, at + 2u * LANES, start, end), part_seen(t.d, at + 3u * LANES, start, end),
    );
}

fn top(t: Tile, start: vec4<f32>) -> vec4<f32> {
    return part_top(t.d, part_top(t.c, part_top(t.b, part_top(t.a, start))));
}

fn total(t: Tile, start: vec4<f32>) -> vec4<f32> {
    return part_total(t.d, part_total(t.c, part_total(t.b, part_total(t.a, start))));
}

fn weights(t: Tile, top: vec4<f32>) -> Tile {
    return Tile(
        part_weights(t.a, top), part_weights(t.b, top), part_weights(t.c, top), part_weights(t.d, top),
    );
}

// `top` and `mean` of the others' rows, as this lane fetched them.
fn weights_by(t: Tile, top: vec4<f32>) -> Tile {
    return Tile(
        part_weights_by(t.a, top.x), part_weights_by(t.b, top.y),
        part_weights_by(t.c, top.z), part_weights_by(t.d, top.w),
    );
}

fn slopes(t: Tile, d: Tile, mean: vec4<f32>) -> Tile {
    return Tile(
        part_slopes(t.a, d.a, mean), part_slopes(t.b, d.b, mean),
        part_slopes(t.c, d.c, mean), part_slopes(t.d, d.d, mean),
    );
}

fn slopes_by(t: Tile, d: Tile, mean: vec4<f32>) -> Tile {
    return Tile(
        part_slopes_by(t.a, d.a, mean.x), part_slopes_by(t.b, d.b, mean.y),
        part_slopes_by(t.c, d.c, mean.z), part_slopes_by(t.d, d.d, mean.w),
    );
}

fn thinned(t: Tile, row: vec4<u32>, tile: u32) -> Tile {
    let quad = tile * LANES;
    return Tile(
        part_kept(t.a, row, quad), part_kept(t.b, row, quad + LANES / 4u),
        part_kept(t.c, row, quad + LANES / 2u), part_kept(t.d, row, quad + LANES / 4u * 3u),
    );
}

fn thinned_by(t: Tile, row: u32, quad: u32) -> Tile {
    return Tile(
        part_kept_by(t.a, row, quad), part_kept_by(t.b, row + LANES, quad),
        part_kept_by(t.c, row + 2u * LANES, quad), part_kept_by(t.d, row + 3u * LANES, quad),
    );
}
