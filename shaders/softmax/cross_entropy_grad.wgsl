// cross_entropy_grad: dx = (e^(x - lse.x - lse.y) - [column = label]) dloss, 0 where the label is IGNORE (2^32 - 1)
// x [rows, cols], labels [rows] u32, lse [rows, 2], dloss [rows] or one for all -> dx as y [rows, cols], or in place of x
// grid: one thread for each `run` vec4s of elements, folded      overrides: none
#import common/grid
#import common/elem
#import common/operand
#import common/nan
struct Params {
    threads_x: u32,
    quads: u32,
    rows: u32,
    cols: u32,
    run: u32,
    dloss_step: u32, // 0: one for all rows
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> labels: array<u32>;
@group(0) @binding(4) var<storage, read_write> lse: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> dloss: array<f32>;

// What a row's elements share.
struct Row {
    number: u32,
    start: u32,
    label: u32, // as an element's number
    lse: vec2<f32>,
    dloss: f32,
    ignored: bool,
}

fn row_at(number: u32) -> Row {
    let start = number * p.cols;
    // After the last row is padding.
    let own = min(number, p.rows - 1u);
    let label = labels[own];
    return Row(number, start, start + label, lse[own], dloss[own * p.dloss_step], label == 0xffffffffu);
}

fn slope(v: vec4<f32>, q: u32, row: Row) -> vec4<f32> {
    // In two steps: beside a large maximum the logarithm would lose its digits.
    let probability = exp4((v - row.lse.x) - row.lse.y);
    let hit = 4u * q + vec4(0u, 1u, 2u, 3u) == vec4(row.label);
    // Not a product with 0: logits of a row that is ignored may be NaN.
    return select((probability - select(vec4<f32>(), vec4(1.0), hit)) * row.dloss, vec4<f32>(), row.ignored);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var q = thread_number(id, p.threads_x) * p.run;
    if (q >= p.quads) {
        return;
    }
    let end = min(q + p.run, p.quads);
    var row = row_at(4u * q / p.cols);
    while (q < end) {
        // Vec4s that lie in one row.
        let inside = min((row.start + p.cols) / 4u, end);
        for (; q < inside; q++) {
            set_y(q, slope(x_at(q), q, row));
        }
        // Four elements that begin in this row and end in others.
        if (q < end) {
            let v = x_at(q);
            var parts = slope(v, q, row);
            for (var k = 0u; k < 4u; k++) {
                if (4u * q + k >= row.start + p.cols) {
                    row = row_at(row.number + 1u);
                }
                parts[k] = slope(v, q, row)[k];
            }
            set_y(q, parts);
            q++;
        }
    }
}
