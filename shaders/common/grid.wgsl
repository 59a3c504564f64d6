// The number of a thread in a folded grid.
fn thread_number(id: vec3<u32>, threads_x: u32) -> u32 { return id.y * threads_x + id.x; }
#if STRIDED

// Row-major positions in a shape of up to six dimensions (missing ones are 1), as offsets under other strides.
struct Six {
    low: vec4<u32>,
    high: vec4<u32>,
}

// The six coordinates of element i.
fn coordinates(i: u32, dims: Six) -> Six {
    var rest = i;
    var at: Six;
    at.high.y = rest % dims.high.y;
    rest /= dims.high.y;
    at.high.x = rest % dims.high.x;
    rest /= dims.high.x;
    at.low.w = rest % dims.low.w;
    rest /= dims.low.w;
    at.low.z = rest % dims.low.z;
    rest /= dims.low.z;
    at.low.y = rest % dims.low.y;
    at.low.x = rest / dims.low.y;
    return at;
}

fn offset_of(at: Six, strides: Six) -> u32 {
    let low = at.low * strides.low;
    let high = at.high.xy * strides.high.xy;
    return low.x + low.y + low.z + low.w + high.x + high.y;
}
#endif
