// What a workgroup reads of its operands, step by step: tiles in workgroup memory, in f16, zero beyond the edges.
// A's has 2 ROWS SIDE rows, B's GROUPS_N COLUMNS SIDE columns.
override LANES: u32 = 32u;
override GROUPS_N: u32 = 4u;
override ROWS: u32 = 4u;
override COLUMNS: u32 = 2u;
override TRANSPOSE_A: bool = false;
override TRANSPOSE_B: bool = false;
override FOURS_A: bool = false;
override FOURS_B: bool = false;

// Steps of K between two barriers.
const DEPTH = 32u;
// Lines of a tile are longer by eight numbers: eight lines under each other then lie in different banks.
const GAP = 8u;
override TILE_M: u32 = 2u * ROWS * SIDE;
override TILE_N: u32 = GROUPS_N * COLUMNS * SIDE;
override THREADS: u32 = 2u * GROUPS_N * LANES;
// A's tile and behind it B's. They lie as in memory, in lines of M, N or K; short lines take most room.
override B_PLACE: u32 = TILE_M * (DEPTH + GAP);
override UNITS: u32 = (TILE_M + TILE_N) * (DEPTH + GAP) / UNIT;
var<workgroup> tile: array<Unit, UNITS>;
fn across_a() -> u32 { return select(DEPTH, TILE_M, TRANSPOSE_A) / 4u; }
fn across_b() -> u32 { return select(TILE_N, DEPTH, TRANSPOSE_B) / 4u; }
fn count_of_a() -> u32 { return TILE_M * DEPTH / 4u / THREADS; }
fn count_of_b() -> u32 { return TILE_N * DEPTH / 4u / THREADS; }

// Where a tile begins in an operand of `lines` lines of `length` numbers.
struct Corner {
    base: u32, line: u32, along: u32, lines: u32, length: u32,
}

// Four neighbours of a tile that has `across` such fours in a line: where they lie, and how many of them exist.
fn find(corner: Corner, across: u32, number: u32) -> vec2<u32> {
    let line = corner.line + number / across;
    let along = corner.along + number % across * 4u;
    let live = line < corner.lines && along < corner.length;
    let at = corner.base + line * corner.length + along;
    return select(vec2(0u), vec2(at, min(corner.length - along, 4u)), live);
}

// Zeros beyond the edges. What is past K is zero on both sides; what is past M or N is never stored.
fn four_of_a(corner: Corner, number: u32) -> vec4<f16> {
    let found = find(corner, across_a(), number);
    if (FOURS_A) {
        return select(vec4<f16>(), vec4<f16>(a[found.x / 4u]), found.y > 0u);
    }
    let i = found.x + min(vec4(0u, 1u, 2u, 3u), vec4(max(found.y, 1u) - 1u));
    let four = vec4(f16(a[i.x / 4u][i.x % 4u]), f16(a[i.y / 4u][i.y % 4u]),
        f16(a[i.z / 4u][i.z % 4u]), f16(a[i.w / 4u][i.w % 4u]));
    return select(vec4<f16>(), four, vec4(0u, 1u, 2u, 3u) < vec4(found.y));
}

fn four_of_b(corner: Corner, number: u32) -> vec4<f16> {
    let found = find(corner, across_b(), number);
    if (FOURS_B) {
        return select(vec4<f16>(), vec4<f16>(b[found.x / 4u]), found.y > 0u);
    }
    let i = found.x + min(vec4(0u, 1u, 2u, 3u), vec4(max(found.y, 1u) - 1u));
    let four = vec4(f16(b[i.x / 4u][i.x % 4u]), f16(b[i.y / 4u][i.y % 4u]),
        f16(b[i.z / 4u][i.z % 4u]), f16(b[i.w / 4u][i.w % 4u]));
    return select(vec4<f16>(), four, vec4(0u, 1u, 2u, 3u) < vec4(found.y));
}

// What a thread brings of a tile, as many as there are.
struct Fours {
    v0: vec4<f16>, v1: vec4<f16>, v2: vec4<f16>, v3: vec4<f16>,
    v4: vec4<f16>, v5: vec4<f16>, v6: vec4<f16>, v7: vec4<f16>,
}

fn fetch_a(corner: Corner, thread: u32) -> Fours {
    var all: Fours;
    if (count_of_a() > 0u) { all.v0 = four_of_a(corner, thread); }
    if (count_of_a() > 1u) { all.v1 = four_of_a(corner, thread + THREADS); }
    if (count_of_a() > 2u) { all.v2 = four_of_a(corner, thread + 2u * THREADS); }
    if (count_of_a() > 2u) { all.v3 = four_of_a(corner, thread + 3u * THREADS); }
    if (count_of_a() > 4u) { all.v4 = four_of_a(corner, thread + 4u * THREADS); }
    if (count_of_a() > 4u) { all.v5 = four_of_a(corner, thread + 5u * THREADS); }
    if (count_of_a() > 4u) { all.v6 = four_of_a(corner, thread + 6u * THREADS); }
    if (count_of_a() > 4u) { all.v7 = four_of_a(corner, thread + 7u * THREADS); }
    return all;
}

fn fetch_b(corner: Corner, thread: u32) -> Fours {
    var all: Fours;
    if (count_of_b() > 0u) { all.v0 = four_of_b(corner, thread); }
    if (count_of_b() > 1u) { all.v1 = four_of_b(corner, thread + THREADS); }
    if (count_of_b() > 2u) { all.v2 = four_of_b(corner, thread + 2u * THREADS); }
    if (count_of_b() > 2u) { all.v3 = four_of_b(corner, thread + 3u * THREADS); }
    if (count_of_b() > 4u) { all.v4 = four_of_b(corner, thread + 4u * THREADS); }
    if (count_of_b() > 4u) { all.v5 = four_of_b(corner, thread + 5u * THREADS); }
    if (count_of_b() > 4u) { all.v6 = four_of_b(corner, thread + 6u * THREADS); }
    if (count_of_b() > 4u) { all.v7 = four_of_b(corner, thread + 7u * THREADS); }
    return all;
}

// Start of a tile, its fours in a line, which of them.
fn keep_one(place: vec2<u32>, number: u32, v: vec4<f16>) {
    keep_four(place.x + number / place.y * (4u * place.y + GAP) + number % place.y * 4u, v);
}

fn keep(all: Fours, place: vec2<u32>, count: u32, thread: u32) {
    if (count > 0u) { keep_one(place, thread, all.v0); }
    if (count > 1u) { keep_one(place, thread + THREADS, all.v1); }
    if (count > 2u) { keep_one(place, thread + 2u * THREADS, all.v2); }
    if (count > 2u) { keep_one(place, thread + 3u * THREADS, all.v3); }
    if (count > 4u) { keep_one(place, thread + 4u * THREADS, all.v4); }
    if (count > 4u) { keep_one(place, thread + 5u * THREADS, all.v5); }
    if (count > 4u) { keep_one(place, thread + 6u * THREADS, all.v6); }
    if (count > 4u) { keep_one(place, thread + 7u * THREADS, all.v7); }
}
