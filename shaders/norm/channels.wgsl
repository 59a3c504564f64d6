// Sums over all elements of a channel of [n, c, h, w], cut into parts. Job = part * channels + channel.
struct Params {
    grid_x: u32,
    channels: u32,
    plane: u32,
    count: u32, // elements of a channel: n * plane
    parts: u32,
    part_len: u32,
    eps: f32,
    activation: u32,
    training: u32,
    momentum: f32, // of running statistics
    unbias: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
