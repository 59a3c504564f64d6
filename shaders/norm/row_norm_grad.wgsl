// row_norm_grad: dx = deviation (g - mean of g - x̂ mean of g x̂), g = gamma dy, x̂ = (x - mean) deviation; the mean of g for
// layer norm alone
// dy as x [rows, cols], x as held [rows, cols], statistics [rows, 2 or 1], gamma [cols] -> dx as y, or in place of dy
// grid: one thread (CPU) or workgroup (GPU) per row, folded      overrides: none
#import common/elem
#import common/held
#import common/jobs
#import common/operand
#import norm/row_norm_kind
struct Params {
    grid_x: u32,
    rows: u32,
    cols: u32, // in Elems
    share: f32, // 1 / elements of a row
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(5) var<storage, read_write> gamma: array<InMemory>;

fn slope_at(i: u32, column: u32) -> Elem { return x_at(i) * from_memory(gamma[column]); }

// Standardised first: powers of the deviation alone would leave the range of f32.
fn normal_at(i: u32, mean: f32, deviation: f32) -> Elem {
    return centred(held_at(i), mean) * deviation;
}

const BLOCK = 64u * GROUP;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = job_of(wg.y * p.grid_x + wg.x, thread);
    let lane = lane_of(thread);
    if (row >= p.rows) {
        return;
    }
    let start = row * p.cols;
    let mean = mean_of(row);
    let deviation = deviation_of(row);
    var sums = Elem();
    var products = Elem();
    for (var block = lane; block < p.cols; block += BLOCK) {
        // One long sum would lose the digits of its terms.
        let end = block + min(BLOCK, p.cols - block);
        var block_sums = Elem();
        var block_products = Elem();
        var c = block;
        for (; c + GROUP < end; c += 2u * GROUP) {
            let g0 = slope_at(start + c, c);
            let g1 = slope_at(start + c + GROUP, c + GROUP);
            block_sums += g0 + g1;
            let first = g0 * normal_at(start + c, mean, deviation);
            block_products += first + g1 * normal_at(start + c + GROUP, mean, deviation);
        }
        if (c < end) {
            let g = slope_at(start + c, c);
            block_sums += g;
            block_products += g * normal_at(start + c, mean, deviation);
        }
        sums += block_sums;
        products += block_products;
    }
    var mean_g = 0.0;
    if (CENTRED) {
        mean_g = group_sum(lane, total(sums)) * p.share;
    }
    let slope = group_sum(lane, total(products)) * p.share;
    var c = lane;
    for (; c + GROUP < p.cols; c += 2u * GROUP) {
        let i = start + c;
        let d0 = slope_at(i, c) - mean_g - normal_at(i, mean, deviation) * slope;
        let d1 = slope_at(i + GROUP, c + GROUP) - mean_g - normal_at(i + GROUP, mean, deviation) * slope;
        set_y(i, deviation * d0);
        set_y(i + GROUP, deviation * d1);
    }
    if (c < p.cols) {
        let i = start + c;
        set_y(i, deviation * (slope_at(i, c) - mean_g - normal_at(i, mean, deviation) * slope));
    }
}
