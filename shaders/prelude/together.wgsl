// A workgroup does a job together: GPUs.
const THREADS = GROUP;
fn job_of(group: u32, thread: u32) -> u32 {
    return group;
}
fn lane_of(thread: u32) -> u32 {
    return thread;
}
