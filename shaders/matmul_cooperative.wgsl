// matmul_cooperative: C = op(A) · op(B), any sizes, factors rounded to f16, sums in f32, by cooperative matrices
// a [M, K], or [K, M] with TRANSPOSE_A   b [K, N], or [N, K] with TRANSPOSE_B   ->   c [M, N]
//   repeated `batch` times; K = 0 gives zeros
// grid: see prelude/matmul_params; surplus workgroups return; tiles_m = ceil(M / TILE_M), tiles_n = ceil(N / TILE_N)
// overrides: LANES of a subgroup; GROUPS_N subgroups along N, of two along M, each with ROWS (2 or 4) times COLUMNS
//   (2 or 4) matrices of sums; TRANSPOSE_A, TRANSPOSE_B; FOURS_A, FOURS_B: lines in memory are multiples of four long
// requires: SHADER_F16, cooperative matrices, subgroups of LANES throughout, so many that no thread brings more than eight
//   fours of an operand at once. No subgroup arithmetic: a driver crashes where one module has both.
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

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

// Which part of `sums` is a subgroup's, its lane, and where its batch begins in C.
struct Own {
    at: u32, lane: u32, base: u32,
}

// Stores a matrix of sums by way of workgroup memory, where each lane finds what is inside of C.
fn put(s: Sums, own: Own, row: u32, column: u32) {
    let at = own.at;
    let stride = SIDE;
    workgroupBarrier();
    coopStoreT(s, &sums[at], stride);
    workgroupBarrier();
    for (var i = own.lane * 4u; i < SIDE * SIDE; i += LANES * 4u) {
        let r = row + i / SIDE;
        let across = column + i % SIDE + vec4(0u, 1u, 2u, 3u);
        let v = vec4(sums[at + i], sums[at + i + 1u], sums[at + i + 2u], sums[at + i + 3u]);
        if (r < p.m) {
            store(own.base + r * p.n + across, across < vec4(p.n), v);
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) group: u32, @builtin(subgroup_invocation_id) lane: u32,
) {
    let number = wg.y * p.grid_x + wg.x;
    let per_matrix = p.tiles_m * p.tiles_n;
    let batch = number / per_matrix;
    if (batch >= p.batch) {
        return;
    }
    let row0 = number % per_matrix / p.tiles_n * TILE_M;
    let column0 = number % per_matrix % p.tiles_n * TILE_N;
    var corner_a = Corner(batch * p.a_batch, row0, 0u, p.m, p.k);
    if (TRANSPOSE_A) {
        corner_a = Corner(batch * p.a_batch, 0u, row0, p.k, p.m);
    }
    var corner_b = Corner(batch * p.b_batch, 0u, column0, p.k, p.n);
    if (TRANSPOSE_B) {
        corner_b = Corner(batch * p.b_batch, column0, 0u, p.n, p.k);
    }
    let row_in = group / GROUPS_N * ROWS * SIDE;
    let column_in = group % GROUPS_N * COLUMNS * SIDE;
    var s00 = Sums(); var s01 = Sums(); var s02 = Sums(); var s03 = Sums();
    var s10 = Sums(); var s11 = Sums(); var s12 = Sums(); var s13 = Sums();
    var s20 = Sums(); var s21 = Sums(); var s22 = Sums(); var s23 = Sums();
    var s30 = Sums(); var s31 = Sums(); var s32 = Sums(); var s33 = Sums();
    var next_a = fetch_a(corner_a, thread);
    var next_b = fetch_b(corner_b, thread);
    for (var k0 = 0u; k0 < p.k; k0 += DEPTH) {
        keep(next_a, vec2(0u, across_a()), count_of_a(), thread);
        keep(next_b, vec2(B_PLACE, across_b()), count_of_b(), thread);
        workgroupBarrier();
        // What comes next is on its way while this is multiplied.
        corner_a.line += select(0u, DEPTH, TRANSPOSE_A);
        corner_a.along += select(DEPTH, 0u, TRANSPOSE_A);
        corner_b.line += select(DEPTH, 0u, TRANSPOSE_B);
        corner_b.along += select(0u, DEPTH, TRANSPOSE_B);
        next_a = fetch_a(corner_a, thread);
        next_b = fetch_b(corner_b, thread);
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
    let own = Own(group * SIDE * SIDE, lane, batch * p.c_batch);
    let row = row0 + row_in;
    let column = column0 + column_in;
    put(s00, own, row, column);
    put(s01, own, row, column + SIDE);
    if (COLUMNS > 2u) {
        put(s02, own, row, column + 2u * SIDE);
        put(s03, own, row, column + 3u * SIDE);
    }
    put(s10, own, row + SIDE, column);
    put(s11, own, row + SIDE, column + SIDE);
    if (COLUMNS > 2u) {
        put(s12, own, row + SIDE, column + 2u * SIDE);
        put(s13, own, row + SIDE, column + 3u * SIDE);
    }
    if (ROWS > 2u) {
        put(s20, own, row + 2u * SIDE, column);
        put(s21, own, row + 2u * SIDE, column + SIDE);
        if (COLUMNS > 2u) {
            put(s22, own, row + 2u * SIDE, column + 2u * SIDE);
            put(s23, own, row + 2u * SIDE, column + 3u * SIDE);
        }
        put(s30, own, row + 3u * SIDE, column);
        put(s31, own, row + 3u * SIDE, column + SIDE);
        if (COLUMNS > 2u) {
            put(s32, own, row + 3u * SIDE, column + 2u * SIDE);
            put(s33, own, row + 3u * SIDE, column + 3u * SIDE);
        }
    }
}
