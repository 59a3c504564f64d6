// Tiles of scores on GPUs: 64 own rows against 32 other rows, by 64 threads. Own and other rows past the end repeat the
// last row; their scores are hidden, or their results are not stored. 15,616 bytes of workgroup memory. Results of heads that
// have few chunks stay in registers until all tiles are added.
const OWN = 64u;
const TILE = 32u;

// Pitches of a row of 16 vec4, and in `near` of a row of 8: one more, which spreads stores over all banks.
const PITCH = 17u;
const NEAR_PITCH = 9u;
// Sixteen elements of a head of the own rows, or sixteen of the other rows.
var<workgroup> far: array<vec4<f32>, 272>;
// Sixteen elements of a head of the other rows; also numbers that threads exchange.
var<workgroup> near: array<vec4<f32>, 160>;
// The tile: the weights of other row j for own rows 4 i to 4 i + 3 are at j PITCH + i.
var<workgroup> held: array<vec4<f32>, 544>;

// `count` rows in memory: row i starts at base + i pitch, in vec4.
struct Rows { which: u32, base: u32, pitch: u32, count: u32, }

// A thread's part: own rows 4 y to 4 y + 3 (r0 to r3) and those 32 further (r4 to r7), against other rows 4 x to 4 x + 3.
struct Micro {
    r0: vec4<f32>, r1: vec4<f32>, r2: vec4<f32>, r3: vec4<f32>,
    r4: vec4<f32>, r5: vec4<f32>, r6: vec4<f32>, r7: vec4<f32>,
}

// 0 past the end: a weight of 0 times an infinity of the last row would be NaN.
fn row_quad(rows: Rows, row: u32, quad: u32) -> vec4<f32> {
    let i = rows.base + min(row, rows.count - 1u) * rows.pitch + min(quad, p.quads - 1u);
    return select(vec4<f32>(), source(rows.which, i), quad < p.quads && row < rows.count);
}

// One vec4 of each of four rows, transposed.
fn four_rows(rows: Rows, row: u32, quad: u32) -> Quads {
    return transposed(
        row_quad(rows, row, quad), row_quad(rows, row + 1u, quad),
        row_quad(rows, row + 2u, quad), row_quad(rows, row + 3u, quad),
    );
}

// Products of the own rows from `own0` on with the other rows from `other0` on.
fn dots(thread: u32, own: Rows, own0: u32, other: Rows, other0: u32) -> Micro {
    let x = thread % 8u;
    let y = thread / 8u;
    var m = Micro();
    for (var quad = 0u; quad < p.quads; quad += 4u) {
        let step = thread % 4u;
        let four = thread / 4u;
        workgroupBarrier();
        let a = four_rows(own, own0 + four * 4u, quad + step);
#repeat i 4
        far[(step * 4u + $(i)u) * PITCH + four] = a.r$i;
#endrepeat
        if (four < 8u) {
            let b = four_rows(other, other0 + four * 4u, quad + step);
#repeat i 4
            near[(step * 4u + $(i)u) * NEAR_PITCH + four] = b.r$i;
#endrepeat
        }
        workgroupBarrier();
        for (var c = 0u; c < 16u; c += 1u) {
            let s0 = far[c * PITCH + y];
            let s1 = far[c * PITCH + y + 8u];
            let b = near[c * NEAR_PITCH + x];
#repeat i 8
            m.r$i = fma(vec4(s$(i / 4)[$(i % 4)]), b, m.r$i);
#endrepeat
        }
    }
    return m;
}

// Writes a thread's part to `held`, between two barriers.
fn hold(thread: u32, m: Micro) {
    let x = thread % 8u * 4u;
    let y = thread / 8u;
    let a = transposed(m.r0, m.r1, m.r2, m.r3);
    let b = transposed(m.r4, m.r5, m.r6, m.r7);
    workgroupBarrier();
#repeat i 4
    held[(x + $(i)u) * PITCH + y] = a.r$i;
    held[(x + $(i)u) * PITCH + y + 8u] = b.r$i;
#endrepeat
    workgroupBarrier();
}

// result = (result * before + sum) * after, for two vec4 of an own row of a result. Where `before` is 0 the old result is not
// used: the memory may be uninitialized.
fn store(to: Rows, row: u32, quad: u32, left: vec4<f32>, right: vec4<f32>, before: f32, after: f32) {
    let at = to.base + row * to.pitch + quad;
    if (row < to.count && quad < p.quads) {
        set_result(to.which, at, (select(vec4<f32>(), result(to.which, at) * before, before != 0.0) + left) * after);
    }
    if (row < to.count && quad + 8u < p.quads) {
        let old = select(vec4<f32>(), result(to.which, at + 8u) * before, before != 0.0);
        set_result(to.which, at + 8u, (old + right) * after);
    }
}

// Results that are kept in registers: the vec4s of a head in chunks of 16; 0: in memory, tile by tile.
override CHUNKS: u32 = 0u;

// A thread's part of a chunk of a result: vec4 x (l0 to l7) and x + 8 (r0 to r7) of the own rows of its Micro.
struct Sums {
#repeat i 8
    l$i: vec4<f32>, r$i: vec4<f32>,
#endrepeat
}

// A number for each own row of a Micro.
struct Numbers { low: vec4<f32>, high: vec4<f32>, }

fn same(value: f32) -> Numbers { return Numbers(vec4(value), vec4(value)); }

// Where a factor is 0 nothing of the sum is left, NaN neither.
fn scaled(s: Sums, by: Numbers) -> Sums {
    return Sums(
#repeat i 4
        select(vec4<f32>(), s.l$i * by.low[$i], by.low[$i] != 0.0),
        select(vec4<f32>(), s.r$i * by.low[$i], by.low[$i] != 0.0),
#endrepeat
#repeat i 4
        select(vec4<f32>(), s.l$(i + 4) * by.high[$i], by.high[$i] != 0.0),
        select(vec4<f32>(), s.r$(i + 4) * by.high[$i], by.high[$i] != 0.0),
#endrepeat
    );
}

// Adds the other rows, weighted by the tile, to a chunk that starts at `quad`.
fn gathered(thread: u32, other: Rows, other0: u32, quad: u32, sums: Sums) -> Sums {
    let x = thread % 8u;
    let y = thread / 8u;
    var s = sums;
    for (var half = 0u; half < TILE; half += 16u) {
        workgroupBarrier();
        for (var j = thread / 16u; j < 16u; j += 4u) {
            far[j * PITCH + thread % 16u] = row_quad(other, other0 + half + j, quad + thread % 16u);
        }
        workgroupBarrier();
        for (var j = 0u; j < 16u; j += 1u) {
            let s0 = held[(half + j) * PITCH + y];
            let s1 = held[(half + j) * PITCH + y + 8u];
            let left = far[j * PITCH + x];
            let right = far[j * PITCH + x + 8u];
#repeat i 8
            s.l$i = fma(vec4(s$(i / 4)[$(i % 4)]), left, s.l$i);
            s.r$i = fma(vec4(s$(i / 4)[$(i % 4)]), right, s.r$i);
#endrepeat
        }
    }
    return s;
}

// Stores a chunk by `store`.
fn put(thread: u32, to: Rows, own0: u32, quad: u32, sums: Sums, before: Numbers, after: Numbers) {
    let x = thread % 8u;
    let y = thread / 8u;
    var s = sums;
    var b = before;
    var a = after;
    // One store in a loop that shifts the sums: SwiftShader takes seconds to compile eight stores.
    for (var i = 0u; i < 8u; i += 1u) {
        store(to, own0 + y * 4u + i % 4u + i / 4u * 32u, quad + x, s.l0, s.r0, b.low.x, a.low.x);
#repeat i 7
        s.l$i = s.l$(i + 1);
        s.r$i = s.r$(i + 1);
#endrepeat
        b = Numbers(vec4(b.low.yzw, b.high.x), b.high.yzww);
        a = Numbers(vec4(a.low.yzw, a.high.x), a.high.yzww);
    }
}

// Adds the other rows, weighted by the tile, to the own rows of a result in memory, with the factors of `store`.
fn gather(thread: u32, other: Rows, other0: u32, to: Rows, own0: u32, before: Numbers, after: Numbers) {
    for (var quad = 0u; quad < p.quads; quad += 16u) {
        put(thread, to, own0, quad, gathered(thread, other, other0, quad, Sums()), before, after);
    }
}
