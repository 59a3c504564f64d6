// Products and convolutions by cooperative matrices.
#import cooperative/matrices
#import cooperative/tiles
#if MATMUL
#import cooperative/product
#elif WEIGHT
#import conv/weight_operands
#else
#import conv/operands
#endif
// cooperative: matrix products by cooperative matrices, any sizes, factors rounded to f16, sums in f32
//   2 ROWS SIDE x GROUPS_N COLUMNS SIDE results per workgroup
// The imported source reads the operands and stores the results; tiles.wgsl lists the functions it defines.
// grid: a workgroup for each tile, folded: number = wg.y * grid_x + wg.x; surplus workgroups return
// overrides: LANES of a subgroup; GROUPS_N subgroups along the columns, of two along the rows, each with ROWS (2 or 4) times
//   COLUMNS (2 or 4) matrices of sums
// requires: SHADER_F16, cooperative matrices, subgroups of LANES throughout, so many that no thread brings more than eight
//   vec4 of an operand at once; where they have others, results are NaN. No subgroup arithmetic: a driver crashes where one
//   module has both.

// A matrix of sums for each subgroup.
override ALL_SUMS: u32 = 2u * GROUPS_N * SIDE * SIDE;
var<workgroup> sums: array<f32, ALL_SUMS>;

fn part_of_a(row: u32, k: u32) -> PartA {
    let stride = (4u * across_a() + GAP) / UNIT;
    if (TRANSPOSE_A) {
        let at = k * stride + row / UNIT;
        return coopLoad<PartA>(&tile[at], stride);
    }
    let at = row * stride + k / UNIT;
    return coopLoadT<PartA>(&tile[at], stride);
}

fn part_of_b(column: u32, k: u32) -> PartB {
    let stride = (4u * across_b() + GAP) / UNIT;
    if (TRANSPOSE_B) {
        let at = B_PLACE / UNIT + column * stride + k / UNIT;
        return coopLoad<PartB>(&tile[at], stride);
    }
    let at = B_PLACE / UNIT + k * stride + column / UNIT;
    return coopLoadT<PartB>(&tile[at], stride);
}

// Which part of `sums` is a subgroup's, its lane, and whether subgroups have another size.
struct Own {
    at: u32, lane: u32, wrong: bool,
}

// Stores a matrix of sums by way of workgroup memory, from where each lane passes on vec4s of `results`: those of its columns.
fn put(s: Sums, own: Own, row: u32, results: Results) {
    let at = own.at;
    let stride = SIDE;
    workgroupBarrier();
    coopStoreT(s, &sums[at], stride);
    workgroupBarrier();
    for (var i = own.lane * 4u; i < SIDE * SIDE; i += LANES * 4u) {
        let v = vec4(sums[at + i], sums[at + i + 1u], sums[at + i + 2u], sums[at + i + 3u]);
        // Bits that depend on a variable: compilers refuse a constant NaN.
        let none = bitcast<f32>(0x7fc00000u | own.lane);
        put_four(results, row + i / SIDE, select(v, vec4(none), own.wrong));
    }
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
) {
    // Of smaller subgroups there are more.
    let group = subgroup % (2u * GROUPS_N);
    let number = wg.y * p.grid_x + wg.x;
    if (number >= workgroups()) {
        return;
    }
    let work = work_of(number);
    let of_a = of_a(work, thread);
    let of_b = of_b(work, thread);
    let row_in = group / GROUPS_N * ROWS * SIDE;
    let column_in = group % GROUPS_N * COLUMNS * SIDE;
    var s00 = Sums(); var s01 = Sums(); var s02 = Sums(); var s03 = Sums();
    var s10 = Sums(); var s11 = Sums(); var s12 = Sums(); var s13 = Sums();
    var s20 = Sums(); var s21 = Sums(); var s22 = Sums(); var s23 = Sums();
    var s30 = Sums(); var s31 = Sums(); var s32 = Sums(); var s33 = Sums();
    var next_a = fetch_a(of_a, work.step, thread);
    var next_b = fetch_b(of_b, work.step, thread);
    for (var k0 = work.step; k0 < work.end; k0 += DEPTH) {
        keep(next_a, Place(0u, across_a(), count_of_a(), DOWN_A), thread);
        keep(next_b, Place(B_PLACE, across_b(), count_of_b(), DOWN_B), thread);
        workgroupBarrier();
        // What comes next is on its way while this is multiplied.
        next_a = fetch_a(of_a, k0 + DEPTH, thread);
        next_b = fetch_b(of_b, k0 + DEPTH, thread);
        for (var k = 0u; k < DEPTH; k += SIDE) {
            let b0 = part_of_b(column_in, k);
            let b1 = part_of_b(column_in + SIDE, k);
            var b2 = PartB();
            var b3 = PartB();
            if (COLUMNS > 2u) {
                b2 = part_of_b(column_in + 2u * SIDE, k);
                b3 = part_of_b(column_in + 3u * SIDE, k);
            }
            let a0 = part_of_a(row_in, k);
            s00 = coopMultiplyAdd(a0, b0, s00);
            s01 = coopMultiplyAdd(a0, b1, s01);
            if (COLUMNS > 2u) {
                s02 = coopMultiplyAdd(a0, b2, s02);
                s03 = coopMultiplyAdd(a0, b3, s03);
            }
            let a1 = part_of_a(row_in + 1u * SIDE, k);
            s10 = coopMultiplyAdd(a1, b0, s10);
            s11 = coopMultiplyAdd(a1, b1, s11);
            if (COLUMNS > 2u) {
                s12 = coopMultiplyAdd(a1, b2, s12);
                s13 = coopMultiplyAdd(a1, b3, s13);
            }
            if (ROWS > 2u) {
                let a2 = part_of_a(row_in + 2u * SIDE, k);
                s20 = coopMultiplyAdd(a2, b0, s20);
                s21 = coopMultiplyAdd(a2, b1, s21);
                if (COLUMNS > 2u) {
                    s22 = coopMultiplyAdd(a2, b2, s22);
                    s23 = coopMultiplyAdd(a2, b3, s23);
                }
                let a3 = part_of_a(row_in + 3u * SIDE, k);
                s30 = coopMultiplyAdd(a3, b0, s30);
                s31 = coopMultiplyAdd(a3, b1, s31);
                if (COLUMNS > 2u) {
                    s32 = coopMultiplyAdd(a3, b2, s32);
                    s33 = coopMultiplyAdd(a3, b3, s33);
                }
            }
        }
        workgroupBarrier();
    }
    let own = Own(group * SIDE * SIDE, lane, size != LANES);
    let row = work.row + row_in;
    // A lane's columns of a matrix: as many lanes as there are store whole rows.
    let column = work.column + column_in + lane * 4u % SIDE;
    let r0 = results_of(work, column);
    let r1 = results_of(work, column + SIDE);
    var r2 = r0;
    var r3 = r0;
    if (COLUMNS > 2u) {
        r2 = results_of(work, column + 2u * SIDE);
        r3 = results_of(work, column + 3u * SIDE);
    }
    put(s00, own, row, r0);
    put(s01, own, row, r1);
    if (COLUMNS > 2u) {
        put(s02, own, row, r2);
        put(s03, own, row, r3);
    }
    put(s10, own, row + SIDE, r0);
    put(s11, own, row + SIDE, r1);
    if (COLUMNS > 2u) {
        put(s12, own, row + SIDE, r2);
        put(s13, own, row + SIDE, r3);
    }
    if (ROWS > 2u) {
        put(s20, own, row + 2u * SIDE, r0);
        put(s21, own, row + 2u * SIDE, r1);
        if (COLUMNS > 2u) {
            put(s22, own, row + 2u * SIDE, r2);
            put(s23, own, row + 2u * SIDE, r3);
        }
        put(s30, own, row + 3u * SIDE, r0);
        put(s31, own, row + 3u * SIDE, r1);
        if (COLUMNS > 2u) {
            put(s32, own, row + 3u * SIDE, r2);
            put(s33, own, row + 3u * SIDE, r3);
        }
    }
}
