// Tiles of scores on CPU adapters: the four own rows of each thread against TILE other rows in 4 parts. Own rows past the end
// repeat the last row, and their results are not stored. The scores of other rows past the end are hidden, and they count as
// 0: a weight of 0 times an infinity of the last row would be NaN.
#import common/lanes
const TILE = 4u * LANES;

// A tile is four parts of LANES other rows, one in each lane: s_j of a part is other row j against own rows x, y, z, w. Eight
// parts take compilers over twice as long, and training steps take as long.
struct Tile {
    p0: Part, p1: Part, p2: Part, p3: Part,
}
struct Part {
#repeat j $LANES
    s$j: vec4<f32>,
#endrepeat
}

// The other rows that a lane loads, one for each part, and which of them there are.
struct Fetched { at: vec4<u32>, inside: vec4<bool>, }

fn dot4(s: vec4<f32>, own: Quads, sum: vec4<f32>) -> vec4<f32> {
    return fma(vec4(s.w), own.r3, fma(vec4(s.z), own.r2, fma(vec4(s.y), own.r1, fma(vec4(s.x), own.r0, sum))));
}

fn spread(s: vec4<f32>, other: vec4<f32>, sum: Quads) -> Quads {
    return Quads(
        fma(vec4(s.x), other, sum.r0), fma(vec4(s.y), other, sum.r1),
        fma(vec4(s.z), other, sum.r2), fma(vec4(s.w), other, sum.r3),
    );
}

// A vec4 of another row, 0 past the end.
fn loaded(theirs: u32, at: u32, inside: bool) -> vec4<f32> {
    return select(vec4<f32>(), source(theirs, at), inside);
}

// Products of the own rows, at `own` in `mine`, with the other rows, of which this lane loads those at `other` in `theirs`.
fn dots(mine: u32, own: vec4<u32>, theirs: u32, other: Fetched) -> Tile {
    var t = Tile();
    for (var c = 0u; c < p.quads; c += 1u) {
        let x = transposed(
            source(mine, own.x + c), source(mine, own.y + c), source(mine, own.z + c), source(mine, own.w + c),
        );
#repeat i 4
        let v$i = loaded(theirs, other.at[$i] + c, other.inside[$i]);
#repeat j $LANES
        t.p$i.s$j = dot4(subgroupBroadcast(v$i, $(j)u), x, t.p$i.s$j);
#endrepeat
#endrepeat
    }
    return t;
}

// result = (result * before + the other rows, weighted by the tile) * after, for the own rows of a result. Where `before`
// is 0 the old result is not used: the memory may be uninitialized.
fn gather(
    t: Tile, theirs: u32, other: Fetched, to: u32, own: vec4<u32>, before: vec4<f32>, after: vec4<f32>,
    inside: vec4<bool>,
) {
    for (var c = 0u; c < p.quads; c += 1u) {
        var sum = Quads(
            select(vec4<f32>(), result(to, own.x + c) * before.x, before.x != 0.0),
            select(vec4<f32>(), result(to, own.y + c) * before.y, before.y != 0.0),
            select(vec4<f32>(), result(to, own.z + c) * before.z, before.z != 0.0),
            select(vec4<f32>(), result(to, own.w + c) * before.w, before.w != 0.0),
        );
#repeat i 4
        let v$i = loaded(theirs, other.at[$i] + c, other.inside[$i]);
#repeat j $LANES
        sum = spread(t.p$i.s$j, subgroupBroadcast(v$i, $(j)u), sum);
#endrepeat
#endrepeat
        if (inside.x) { set_result(to, own.x + c, sum.r0 * after.x); }
        if (inside.y) { set_result(to, own.y + c, sum.r1 * after.y); }
        if (inside.z) { set_result(to, own.z + c, sum.r2 * after.z); }
        if (inside.w) { set_result(to, own.w + c, sum.r3 * after.w); }
    }
}

// The numbers of the other rows of a tile, of `count` rows in all: one in each lane for each part.
fn fetched(tile: u32, lane: u32, count: u32) -> Fetched {
    let at = vec4(tile * TILE + lane % LANES) + vec4(0u, 1u, 2u, 3u) * LANES;
    let last = vec4(count - 1u);
    return Fetched(min(at, last), at <= last);
}

// Offsets of rows in memory.
fn placed(rows: Fetched, base: u32, pitch: u32) -> Fetched {
    return Fetched(base + rows.at * pitch, rows.inside);
}

fn scores(t: Tile, own: Band, tile: u32, slope: f32) -> Tile {
    let at = tile * TILE;
    var s = t;
#repeat i 4
#repeat j $LANES
    s.p$i.s$j = score(t.p$i.s$j, own, vec4(at + $(i * LANES + j)u), slope);
#endrepeat
#endrepeat
    return s;
}

fn top(t: Tile, start: vec4<f32>) -> vec4<f32> {
    var top = start;
#repeat i 4
#repeat j $LANES
    top = max(top, t.p$i.s$j);
#endrepeat
#endrepeat
    return top;
}

fn total(t: Tile, start: vec4<f32>) -> vec4<f32> {
    var sum = start;
#repeat i 4
#repeat j $LANES
    sum += t.p$i.s$j;
#endrepeat
#endrepeat
    return sum;
}

// e^(score - top), with one `top` per own row.
fn weights(t: Tile, top: vec4<f32>) -> Tile {
    var w = t;
#repeat i 4
#repeat j $LANES
    w.p$i.s$j = weight(t.p$i.s$j, top);
#endrepeat
#endrepeat
    return w;
}

// The same with one `top` per other row.
fn weights_by(t: Tile, top: vec4<f32>) -> Tile {
    var w = t;
#repeat i 4
#repeat j $LANES
    w.p$i.s$j = weight(t.p$i.s$j, vec4(subgroupBroadcast(top[$i], $(j)u)));
#endrepeat
#endrepeat
    return w;
}

// weight (dweight - mean) scale times the derivative of capping, with one `mean` per own row.
fn slopes(t: Tile, d: Tile, mean: vec4<f32>, scale: vec4<f32>, products: Tile) -> Tile {
    var s = t;
#repeat i 4
#repeat j $LANES
    s.p$i.s$j = bent(t.p$i.s$j * (d.p$i.s$j - mean) * scale, products.p$i.s$j);
#endrepeat
#endrepeat
    return s;
}

// The same with one `mean` and `scale` per other row.
fn slopes_by(t: Tile, d: Tile, mean: vec4<f32>, scale: vec4<f32>, products: Tile) -> Tile {
    var s = t;
#repeat i 4
#repeat j $LANES
    s.p$i.s$j = bent(t.p$i.s$j * (d.p$i.s$j - vec4(subgroupBroadcast(mean[$i], $(j)u)))
        * subgroupBroadcast(scale[$i], $(j)u), products.p$i.s$j);
#endrepeat
#endrepeat
    return s;
}

// Dropout where the own rows are queries and the other rows are keys.
fn thinned(t: Tile, row: vec4<u32>, tile: u32) -> Tile {
    let quad = tile * (TILE / 4u);
    var s = t;
#repeat q $LANES
    let q$q = transposed(
        kept(row.x, quad + $(q)u), kept(row.y, quad + $(q)u), kept(row.z, quad + $(q)u), kept(row.w, quad + $(q)u),
    );
#repeat e 4
    s.p$(q * 4 / LANES).s$(q * 4 % LANES + e) *= q$q.r$e;
#endrepeat
#endrepeat
    return s;
}

// Dropout where the own rows are the keys of a vec4 and the other rows are queries from `row` on.
fn thinned_by(t: Tile, row: u32, quad: u32) -> Tile {
    var s = t;
#repeat i 4
#repeat j $LANES
    s.p$i.s$j *= kept(row + $(i * LANES + j)u, quad);
#endrepeat
#endrepeat
    return s;
}
