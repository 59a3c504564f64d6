// Source channels of one iteration: one on subgroups of four, else two.
#if LANES4
// An iteration of conv_cpu's inner loop takes one source channel: fewest values to keep, for adapters on which they spill.
const AT_ONCE = 1u;
// Weights of a source for a result channel.
alias Row = f32;
fn first_of(row: Row) -> f32 { return row; }
struct Channels {
    channel: u32,
    terms: Terms,
}
fn channels_of(group: u32, step: u32) -> Channels { return Channels(step, terms_of(group * p.kc + step)); }
// Four pixels of the source's channel; those outside of the image count as zero.
struct Quads {
    b: vec4<f32>,
}
fn pixels_at(channels: Channels, bases: Bases, pixel: vec4<u32>, inside: vec4<bool>) -> Quads {
    return Quads(select(vec4<f32>(), source(bases, channels.channel, pixel, channels.terms), inside));
}
fn add_products(row: Row, pixels: Quads, sum: vec4<f32>) -> vec4<f32> { return fma(vec4(row), pixels.b, sum); }
#else
// An iteration of conv_cpu's inner loop takes two source channels: each sum is fetched and put back half as often.
const AT_ONCE = 2u;
// Weights of a source for a result channel; a channel past the last one has weight zero.
alias Row = vec2<f32>;
fn first_of(row: Row) -> f32 { return row.x; }
struct Channels {
    channel0: u32, channel1: u32,
    terms0: Terms, terms1: Terms,
    has_second: bool,
}
fn channels_of(group: u32, step: u32) -> Channels {
    let channel0 = step * 2u;
    let has_second = channel0 + 1u < p.kc;
    let channel1 = select(channel0, channel0 + 1u, has_second);
    let first = group * p.kc;
    return Channels(channel0, channel1, terms_of(first + channel0), terms_of(first + channel1), has_second);
}
// Four pixels of the source's channels; those outside of the image, and of a channel that is none, count as zero.
struct Quads {
    b0: vec4<f32>, b1: vec4<f32>,
}
fn pixels_at(channels: Channels, bases: Bases, pixel: vec4<u32>, inside: vec4<bool>) -> Quads {
    let inside1 = inside & vec4(channels.has_second);
    return Quads(
        select(vec4<f32>(), source(bases, channels.channel0, pixel, channels.terms0), inside),
        select(vec4<f32>(), source(bases, channels.channel1, pixel, channels.terms1), inside1),
    );
}
fn add_products(row: Row, pixels: Quads, sum: vec4<f32>) -> vec4<f32> {
    return fma(vec4(row.y), pixels.b1, fma(vec4(row.x), pixels.b0, sum));
}
#endif
