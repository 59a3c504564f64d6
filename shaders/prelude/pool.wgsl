// A window over images. Pairs are (rows, columns).
struct Params {
    threads_x: u32,
    total: u32,
    kernel: vec2<u32>,
    stride: vec2<u32>,
    padding: vec2<u32>,
    dilation: vec2<u32>,
    image: vec2<u32>,
    result: vec2<u32>,
}
@group(0) @binding(0) var<uniform> p: Params;
