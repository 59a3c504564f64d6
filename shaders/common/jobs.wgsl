// Which thread does which job: with WORKGROUP a workgroup shares one, else each thread has its own.
#if WORKGROUP
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

// A workgroup does a job together: GPUs.
const THREADS = GROUP;
fn job_of(group: u32, thread: u32) -> u32 { return group; }
fn lane_of(thread: u32) -> u32 { return thread; }
#else
// Each thread does a whole job: CPU adapters. Eight in a workgroup, one for each lane of a register.
const GROUP = 1u;
const THREADS = 8u;

fn group_sum(lane: u32, value: f32) -> f32 { return value; }
fn job_of(group: u32, thread: u32) -> u32 { return group * THREADS + thread; }
fn lane_of(thread: u32) -> u32 { return 0u; }
#endif
