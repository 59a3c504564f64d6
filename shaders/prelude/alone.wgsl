// Each thread does a whole job: CPU adapters. Eight in a workgroup, one for each lane of a register.
const GROUP = 1u;
const THREADS = 8u;

fn group_sum(lane: u32, value: f32) -> f32 {
    return value;
}
fn job_of(group: u32, thread: u32) -> u32 {
    return group * THREADS + thread;
}
fn lane_of(thread: u32) -> u32 {
    return 0u;
}
