// The number of a thread in a grid that is folded because no dimension may exceed 65,535 workgroups.
fn thread_number(id: vec3<u32>, threads_x: u32) -> u32 {
    return id.y * threads_x + id.x;
}
