// A convolution as a matrix product: rows are result channels, columns result pixels, the inner dimension is source
// channels times taps. Forward and the image's gradient differ in their numbers only: result pixel q, for each axis,
// is at q * out + phase and its tap i reads source q * step + off + i * tap_step, with the weight of tap
// first + i * every. A gradient with stride is one launch for each phase, with only the taps that meet it.
struct Axis {
    count: u32, // pixels of this phase
    out: u32,
    phase: u32,
    step: u32,
    off: i32,
    tap_step: i32,
    taps: u32,
    first: u32,
    every: u32,
    src: u32, // length of the source
    dst: u32, // length of the result
    parts: u32, // of y: pieces of the inner dimension, for kernels of GPUs
}
struct Params {
    grid_x: u32,
    tiles_m: u32,
    tiles_n: u32,
    groups: u32,
    m: u32, // result channels of a group
    kc: u32, // source channels of a group
    batch: u32,
    kernel_w: u32,
    weight_taps: u32, // of the whole kernel
    weight_m: u32, // elements between weights of neighbouring result channels
    weight_c: u32, // and source channels
    first: u32, // channels of the first of two sources
    y: Axis,
    x: Axis,
    @align(16) rest: Rest,
}
@group(0) @binding(0) var<uniform> p: Params;

// Columns of the product as image, row and column of the result's phase.
struct Pixels {
    image: vec4<u32>,
    y: vec4<u32>,
    x: vec4<u32>,
}
fn pixels(at: vec4<u32>) -> Pixels {
    let plane = p.y.count * p.x.count;
    let image = at / plane;
    let rest = at - image * plane;
    let y = rest / p.x.count;
    return Pixels(image, y, rest - y * p.x.count);
}

// Where pixels begin in the result, and the step from channel to channel.
fn result_at(pixel: Pixels, group: u32) -> vec4<u32> {
    let rows = (pixel.image * p.groups + group) * p.m * p.y.dst + pixel.y * p.y.out + p.y.phase;
    return rows * p.x.dst + pixel.x * p.x.out + p.x.phase;
}
