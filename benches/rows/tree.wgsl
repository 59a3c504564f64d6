// The textbook's way: a workgroup of 256 threads for each row, sums and maxima by a tree in workgroup memory.
struct Params {
    rows: u32,
    cols: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
var<workgroup> shared_values: array<f32, 256>;

fn tree_sum(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    shared_values[lane] = value;
    workgroupBarrier();
    for (var stride = 128u; stride > 0u; stride /= 2u) {
        if (lane < stride) {
            shared_values[lane] += shared_values[lane + stride];
        }
        workgroupBarrier();
    }
    return shared_values[0];
}

fn tree_max(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    shared_values[lane] = value;
    workgroupBarrier();
    for (var stride = 128u; stride > 0u; stride /= 2u) {
        if (lane < stride) {
            shared_values[lane] = max(shared_values[lane], shared_values[lane + stride]);
        }
        workgroupBarrier();
    }
    return shared_values[0];
}
