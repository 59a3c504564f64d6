// What cooperative matrices multiply for convolutions: quads of the operands that tile64 takes as well, rounded to f16.
const TRANSPOSE_A = true;
const TRANSPOSE_B = false;
const DOWN_A = !A_ACROSS;
const DOWN_B = !B_ACROSS;

fn workgroups() -> u32 {
    return p.tiles_m * p.tiles_n * products();
}

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
fn of_a(work: Work, thread: u32) -> OfA {
    return OfA(work.product, work.row, work.end, thread % DEPTH);
}
fn four_of_a(known: OfA, k0: u32, number: u32) -> vec4<f16> {
    // Behind the last tile, or before the first of a phase that no tap meets.
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

fn results_of(work: Work, column: u32) -> Results {
    return results_at(work.product, column);
}
fn put_four(to: Results, row: u32, v: vec4<f32>) {
    if (row < p.m) {
        store_four(to, row, v);
    }
}
