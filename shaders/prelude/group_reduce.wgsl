// Sum or maximum over a workgroup of 128 threads, the same for all of them; a fixed tree, so the same bits every time.
const GROUP = 128u;
var<workgroup> lanes: array<f32, GROUP>;

fn group_sum(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    lanes[lane] = value;
    workgroupBarrier();
    for (var width = GROUP / 2u; width > 0u; width /= 2u) {
        if (lane < width) {
            lanes[lane] += lanes[lane + width];
        }
        workgroupBarrier();
    }
    return lanes[0];
}

fn group_max(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    lanes[lane] = value;
    workgroupBarrier();
    for (var width = GROUP / 2u; width > 0u; width /= 2u) {
        if (lane < width) {
            lanes[lane] = max(lanes[lane], lanes[lane + width]);
        }
        workgroupBarrier();
    }
    return lanes[0];
}
