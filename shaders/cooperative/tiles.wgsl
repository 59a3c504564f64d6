// What a workgroup reads of its operands, DEPTH steps of the inner dimension at a time: tiles in workgroup memory, in f16, zero
// beyond the last step. A's has 2 ROWS SIDE rows, B's GROUPS_N COLUMNS SIDE columns. The source of the operands (product.wgsl,
// conv/operands.wgsl or conv/weight_operands.wgsl) defines:
//   TRANSPOSE_A, TRANSPOSE_B: lines of A's tile are steps, not rows; lines of B's are columns, not steps
//   DOWN_A, DOWN_B: neighbouring threads fill lines under each other, not the same line; those lines are steps
//   workgroups(), how many there are; Work and work_of(workgroup), which begins at `row` and `column` and sums the steps
//     `step` .. `end`
//   OfA and of_a(work, thread), what a thread knows of A; four_of_a(of_a, k0, number), four neighbours in a line of the tile
//     that begins at step k0; the same for B
//   Results and results_of(work, column), where results of four neighbouring columns go; put_four(results, row, v)
override LANES: u32 = 32u;
override GROUPS_N: u32 = 4u;
override ROWS: u32 = 4u;
override COLUMNS: u32 = 2u;

// Steps of K between two barriers.
const DEPTH = 32u;
// Lines of a tile are longer by eight numbers: eight lines under each other then lie in different banks.
const GAP = 8u;
override TILE_M: u32 = 2u * ROWS * SIDE;
override TILE_N: u32 = GROUPS_N * COLUMNS * SIDE;
override THREADS: u32 = 2u * GROUPS_N * LANES;
// A's tile, then B's, in lines of rows, columns or steps; short lines take most room.
override B_PLACE: u32 = TILE_M * (DEPTH + GAP);
override UNITS: u32 = (TILE_M + TILE_N) * (DEPTH + GAP) / UNIT;
var<workgroup> tile: array<Unit, UNITS>;
fn across_a() -> u32 { return select(DEPTH, TILE_M, TRANSPOSE_A) / 4u; }
fn across_b() -> u32 { return select(TILE_N, DEPTH, TRANSPOSE_B) / 4u; }
fn count_of_a() -> u32 { return TILE_M * DEPTH / 4u / THREADS; }
fn count_of_b() -> u32 { return TILE_N * DEPTH / 4u / THREADS; }

// Line and place in it of a four in a tile that has `across` of them in a line.
fn spot(number: u32, across: u32, down: bool) -> vec2<u32> {
    let along = vec2(number / across, number % across * 4u);
    return select(along, vec2(number % DEPTH, number / DEPTH * 4u), down);
}

// What a thread brings of a tile, as many as there are.
struct Vec4s {
    v0: vec4<f16>, v1: vec4<f16>, v2: vec4<f16>, v3: vec4<f16>,
    v4: vec4<f16>, v5: vec4<f16>, v6: vec4<f16>, v7: vec4<f16>,
}

fn fetch_a(known: OfA, k0: u32, thread: u32) -> Vec4s {
    var all: Vec4s;
#repeat i 8
    if (count_of_a() > $(i)u) { all.v$i = four_of_a(known, k0, thread + $(i)u * THREADS); }
#endrepeat
    return all;
}

fn fetch_b(known: OfB, k0: u32, thread: u32) -> Vec4s {
    var all: Vec4s;
#repeat i 8
    if (count_of_b() > $(i)u) { all.v$i = four_of_b(known, k0, thread + $(i)u * THREADS); }
#endrepeat
    return all;
}

// A tile: where it begins, vec4s in a line, how many of them a thread brings, in which order.
struct Place {
    at: u32, across: u32, count: u32, down: bool,
}

fn keep_one(place: Place, number: u32, v: vec4<f16>) {
    let spot = spot(number, place.across, place.down);
    keep_four(place.at + spot.x * (4u * place.across + GAP) + spot.y, v);
}

fn keep(all: Vec4s, place: Place, thread: u32) {
#repeat i 8
    if (place.count > $(i)u) { keep_one(place, thread + $(i)u * THREADS, all.v$i); }
#endrepeat
}
#if !MATMUL

// What cooperative matrices multiply for convolutions: quads of the operands that tiles take as well, rounded to f16.
const TRANSPOSE_A = true;
const TRANSPOSE_B = false;
const DOWN_A = !A_ACROSS;
const DOWN_B = !B_ACROSS;

fn workgroups() -> u32 { return p.tiles_m * p.tiles_n * products(); }

struct Work {
    product: u32, row: u32, column: u32, step: u32, end: u32,
}
fn work_of(number: u32) -> Work {
    let per_product = p.tiles_m * p.tiles_n;
    let product = number / per_product;
    let first = corner(number % per_product, 1u) * vec2(TILE_M, TILE_N);
    let steps = steps_of(product);
    return Work(product, first.x, first.y, steps.x, steps.y);
}

// Its product, the first row, the end of the steps; the step of a tile at which the thread reads, where threads follow them.
struct OfA {
    product: u32, row: u32, end: u32, down: u32,
}
fn of_a(work: Work, thread: u32) -> OfA { return OfA(work.product, work.row, work.end, thread % DEPTH); }
fn four_of_a(known: OfA, k0: u32, number: u32) -> vec4<f16> {
    // After the last tile, or before the first of a phase that has no taps.
    if (k0 >= known.end) {
        return vec4<f16>();
    }
    let spot = spot(number, across_a(), DOWN_A);
    let step = step_of(k0 + select(spot.x, known.down, DOWN_A), known.end);
    return vec4<f16>(a_quad(rows_at(known.product, known.row + spot.y), step));
}

// Where threads follow columns each reads the same quad of them throughout. Where they follow steps it reads several, and what
// is known of columns waits in workgroup memory.
override QUADS: u32 = select(1u, TILE_N / 4u, DOWN_B);
var<workgroup> all_columns: array<Columns, QUADS>;
struct OfB {
    own: Columns, end: u32, down: u32,
}
fn of_b(work: Work, thread: u32) -> OfB {
    var quad = spot(thread, across_b(), DOWN_B).y;
    if (DOWN_B) {
        quad = min(thread * 4u, TILE_N - 4u);
    }
    let own = columns_at(work.product, work.column + quad);
    if (DOWN_B) {
        if (thread < QUADS) {
            all_columns[thread] = own;
        }
        workgroupBarrier();
    }
    return OfB(own, work.end, thread % DEPTH);
}
fn four_of_b(known: OfB, k0: u32, number: u32) -> vec4<f16> {
    if (k0 >= known.end) {
        return vec4<f16>();
    }
    if (DOWN_B) {
        return vec4<f16>(b_quad(all_columns[number / DEPTH], step_of(k0 + known.down, known.end)));
    }
    return vec4<f16>(b_quad(known.own, step_of(k0 + number / across_b(), known.end)));
}

fn results_of(work: Work, column: u32) -> Results { return results_at(work.product, column); }
fn put_four(to: Results, row: u32, v: vec4<f32>) {
    if (row < p.m) {
        store_four(to, row, v);
    }
}
#endif
