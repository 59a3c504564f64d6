// Result pixel o reads the image at max(0, scale o + shift) / unit, for each axis, exactly: in integers.
override NEAREST: bool = false;
struct Axis {
    image: u32,
    result: u32,
    scale: u32,
    shift: i32,
    unit: u32,
    unused0: u32,
    unused1: u32,
    unused2: u32,
}
struct Params {
    threads_x: u32,
    total: u32,
    pieces: vec2<u32>, // rows and columns of pieces of a sum, for a thread each
    piece: vec2<u32>,
    unused0: u32,
    unused1: u32,
    y: Axis,
    x: Axis,
}
@group(0) @binding(0) var<uniform> p: Params;

struct Place {
    low: u32,
    high: u32,
    // Weight of the higher neighbour.
    share: f32,
}

fn place_of(o: u32, axis: Axis) -> Place {
    let at = u32(max(0, i32(o * axis.scale) + axis.shift));
    let low = min(at / axis.unit, axis.image - 1u);
    if (NEAREST) {
        return Place(low, low, 0.0);
    }
    return Place(low, min(low + 1u, axis.image - 1u), f32(at - low * axis.unit) / f32(axis.unit));
}

// The share of image pixel i in what result pixel o reads.
fn share_of(i: u32, o: u32, axis: Axis) -> f32 {
    let place = place_of(o, axis);
    return select(0.0, 1.0 - place.share, place.low == i) + select(0.0, place.share, place.high == i);
}

// First and end of the result pixels that may read image pixel i.
fn readers(i: u32, axis: Axis) -> vec2<u32> {
    if (axis.scale == 0u) {
        return vec2(0u, axis.result);
    }
    let scale = i32(axis.scale);
    let low = max(0, (i32(i) - 1) * i32(axis.unit) - axis.shift) / scale;
    let high = max(0, (i32(i) + 1) * i32(axis.unit) - axis.shift) / scale + 1;
    let last = axis.result - 1u;
    return vec2(select(min(u32(low), last), 0u, i == 0u), select(min(u32(high), last), last, i + 1u == axis.image) + 1u);
}
