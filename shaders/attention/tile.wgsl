// Tiles of scores on CPU adapters: the four own rows of each thread against TILE other rows in 8 parts. Own rows past the end
// repeat the last row, and their results are not stored. The scores of other rows past the end are hidden, and they count as
// 0: a weight of 0 times an infinity of the last row would be NaN.
#if LANES4
#import attention/fours
#else
#import attention/eights
#endif
const TILE = 8u * LANES;

struct Tile {
    a: Part, b: Part, c: Part, d: Part,
    e: Part, f: Part, g: Part, h: Part,
}

// The other rows that a lane loads, or numbers that belong to them: one for each part.
struct Fetched { v0: vec4<u32>, v1: vec4<u32>, in0: vec4<bool>, in1: vec4<bool>, }
struct Numbers { v0: vec4<f32>, v1: vec4<f32>, }

fn dot4(s: vec4<f32>, own: Quads, sum: vec4<f32>) -> vec4<f32> {
    return fma(vec4(s.w), own.r3, fma(vec4(s.z), own.r2, fma(vec4(s.y), own.r1, fma(vec4(s.x), own.r0, sum))));
}

fn spread(s: vec4<f32>, other: vec4<f32>, sum: Quads) -> Quads {
    return Quads(
        fma(vec4(s.x), other, sum.r0), fma(vec4(s.y), other, sum.r1),
        fma(vec4(s.z), other, sum.r2), fma(vec4(s.w), other, sum.r3),
    );
}

fn hide(s: vec4<f32>, at: u32, start: vec4<u32>, end: vec4<u32>) -> vec4<f32> {
    return select(vec4(HIDDEN), s * p.scale, (vec4(at) >= start) & (vec4(at) < end));
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
        t.a = part_dots(t.a, loaded(theirs, other.v0.x + c, other.in0.x), x);
        t.b = part_dots(t.b, loaded(theirs, other.v0.y + c, other.in0.y), x);
        t.c = part_dots(t.c, loaded(theirs, other.v0.z + c, other.in0.z), x);
        t.d = part_dots(t.d, loaded(theirs, other.v0.w + c, other.in0.w), x);
        t.e = part_dots(t.e, loaded(theirs, other.v1.x + c, other.in1.x), x);
        t.f = part_dots(t.f, loaded(theirs, other.v1.y + c, other.in1.y), x);
        t.g = part_dots(t.g, loaded(theirs, other.v1.z + c, other.in1.z), x);
        t.h = part_dots(t.h, loaded(theirs, other.v1.w + c, other.in1.w), x);
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
        sum = part_sums(t.a, loaded(theirs, other.v0.x + c, other.in0.x), sum);
        sum = part_sums(t.b, loaded(theirs, other.v0.y + c, other.in0.y), sum);
        sum = part_sums(t.c, loaded(theirs, other.v0.z + c, other.in0.z), sum);
        sum = part_sums(t.d, loaded(theirs, other.v0.w + c, other.in0.w), sum);
        sum = part_sums(t.e, loaded(theirs, other.v1.x + c, other.in1.x), sum);
        sum = part_sums(t.f, loaded(theirs, other.v1.y + c, other.in1.y), sum);
        sum = part_sums(t.g, loaded(theirs, other.v1.z + c, other.in1.z), sum);
        sum = part_sums(t.h, loaded(theirs, other.v1.w + c, other.in1.w), sum);
        if (inside.x) { set_result(to, own.x + c, sum.r0 * after.x); }
        if (inside.y) { set_result(to, own.y + c, sum.r1 * after.y); }
        if (inside.z) { set_result(to, own.z + c, sum.r2 * after.z); }
        if (inside.w) { set_result(to, own.w + c, sum.r3 * after.w); }
    }
}

// The numbers of the other rows of a tile, of `count` rows in all: one in each lane for each part.
fn fetched(tile: u32, lane: u32, count: u32) -> Fetched {
    let first = vec4(tile * TILE + lane % LANES);
    let last = vec4(count - 1u);
    let v0 = first + vec4(0u, 1u, 2u, 3u) * LANES;
    let v1 = first + vec4(4u, 5u, 6u, 7u) * LANES;
    return Fetched(min(v0, last), min(v1, last), v0 <= last, v1 <= last);
}

// Offsets of rows in memory.
fn placed(rows: Fetched, base: u32, pitch: u32) -> Fetched {
    return Fetched(base + rows.v0 * pitch, base + rows.v1 * pitch, rows.in0, rows.in1);
}

fn seen(t: Tile, tile: u32, start: vec4<u32>, end: vec4<u32>) -> Tile {
    let at = tile * TILE;
    return Tile(
        part_seen(t.a, at + 0u * LANES, start, end), part_seen(t.b, at + 1u * LANES, start, end),
        part_seen(t.c, at + 2u * LANES, start, end), part_seen(t.d, at + 3u * LANES, start, end),
        part_seen(t.e, at + 4u * LANES, start, end), part_seen(t.f, at + 5u * LANES, start, end),
        part_seen(t.g, at + 6u * LANES, start, end), part_seen(t.h, at + 7u * LANES, start, end),
    );
}

fn top(t: Tile, start: vec4<f32>) -> vec4<f32> {
    var all = start;
    all = part_top(t.a, all); all = part_top(t.b, all); all = part_top(t.c, all); all = part_top(t.d, all);
    all = part_top(t.e, all); all = part_top(t.f, all); all = part_top(t.g, all); all = part_top(t.h, all);
    return all;
}

fn total(t: Tile, start: vec4<f32>) -> vec4<f32> {
    var all = start;
    all = part_total(t.a, all); all = part_total(t.b, all);
    all = part_total(t.c, all); all = part_total(t.d, all);
    all = part_total(t.e, all); all = part_total(t.f, all);
    all = part_total(t.g, all); all = part_total(t.h, all);
    return all;
}

fn weights(t: Tile, top: vec4<f32>) -> Tile {
    return Tile(
        part_weights(t.a, top), part_weights(t.b, top),
        part_weights(t.c, top), part_weights(t.d, top),
        part_weights(t.e, top), part_weights(t.f, top),
        part_weights(t.g, top), part_weights(t.h, top),
    );
}

fn weights_by(t: Tile, top: Numbers) -> Tile {
    return Tile(
        part_weights_by(t.a, top.v0.x), part_weights_by(t.b, top.v0.y),
        part_weights_by(t.c, top.v0.z), part_weights_by(t.d, top.v0.w),
        part_weights_by(t.e, top.v1.x), part_weights_by(t.f, top.v1.y),
        part_weights_by(t.g, top.v1.z), part_weights_by(t.h, top.v1.w),
    );
}

fn slopes(t: Tile, d: Tile, mean: vec4<f32>, scale: vec4<f32>) -> Tile {
    return Tile(
        part_slopes(t.a, d.a, mean, scale), part_slopes(t.b, d.b, mean, scale),
        part_slopes(t.c, d.c, mean, scale), part_slopes(t.d, d.d, mean, scale),
        part_slopes(t.e, d.e, mean, scale), part_slopes(t.f, d.f, mean, scale),
        part_slopes(t.g, d.g, mean, scale), part_slopes(t.h, d.h, mean, scale),
    );
}

fn slopes_by(t: Tile, d: Tile, mean: Numbers, scale: f32) -> Tile {
    return Tile(
        part_slopes_by(t.a, d.a, mean.v0.x, scale), part_slopes_by(t.b, d.b, mean.v0.y, scale),
        part_slopes_by(t.c, d.c, mean.v0.z, scale), part_slopes_by(t.d, d.d, mean.v0.w, scale),
        part_slopes_by(t.e, d.e, mean.v1.x, scale), part_slopes_by(t.f, d.f, mean.v1.y, scale),
        part_slopes_by(t.g, d.g, mean.v1.z, scale), part_slopes_by(t.h, d.h, mean.v1.w, scale),
    );
}

fn thinned(t: Tile, row: vec4<u32>, tile: u32) -> Tile {
    let quad = tile * (TILE / 4u);
    return Tile(
        part_kept(t.a, row, quad + 0u * (LANES / 4u)), part_kept(t.b, row, quad + 1u * (LANES / 4u)),
        part_kept(t.c, row, quad + 2u * (LANES / 4u)), part_kept(t.d, row, quad + 3u * (LANES / 4u)),
        part_kept(t.e, row, quad + 4u * (LANES / 4u)), part_kept(t.f, row, quad + 5u * (LANES / 4u)),
        part_kept(t.g, row, quad + 6u * (LANES / 4u)), part_kept(t.h, row, quad + 7u * (LANES / 4u)),
    );
}

fn thinned_by(t: Tile, row: u32, quad: u32) -> Tile {
    return Tile(
        part_kept_by(t.a, row + 0u * LANES, quad), part_kept_by(t.b, row + 1u * LANES, quad),
        part_kept_by(t.c, row + 2u * LANES, quad), part_kept_by(t.d, row + 3u * LANES, quad),
        part_kept_by(t.e, row + 4u * LANES, quad), part_kept_by(t.f, row + 5u * LANES, quad),
        part_kept_by(t.g, row + 6u * LANES, quad), part_kept_by(t.h, row + 7u * LANES, quad),
    );
}
