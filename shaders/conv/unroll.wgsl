// Source channels of one iteration: one on subgroups of four, else two.
#if LANES4
// A turn of conv_cpu's inner loop takes one source channel: fewest values to keep, for adapters on which they spill.
const AT_ONCE = 1u;
// Weights of a turn for a result channel.
alias Row = f32;
fn first_of(row: Row) -> f32 {
    return row;
}
struct Turn {
    channel: u32,
    terms: Terms,
}
fn turn_of(group: u32, turn: u32) -> Turn {
    return Turn(turn, terms_of(group * p.kc + turn));
}
// Four pixels of the turn's channel; those outside of the image count as zero.
struct Steps {
    b: vec4<f32>,
}
fn steps_at(turn: Turn, bases: Bases, pixel: vec4<u32>, inside: vec4<bool>) -> Steps {
    return Steps(select(vec4<f32>(), source(bases, turn.channel, pixel, turn.terms), inside));
}
fn add_products(row: Row, steps: Steps, sum: vec4<f32>) -> vec4<f32> {
    return fma(vec4(row), steps.b, sum);
}
#else
// A turn of conv_cpu's inner loop takes two source channels: each sum is fetched and put back half as often.
const AT_ONCE = 2u;
// Weights of a turn for a result channel; a channel past the last one has weight zero.
alias Row = vec2<f32>;
fn first_of(row: Row) -> f32 {
    return row.x;
}
struct Turn {
    channel0: u32, channel1: u32,
    terms0: Terms, terms1: Terms,
    has_second: bool,
}
fn turn_of(group: u32, turn: u32) -> Turn {
    let channel0 = turn * 2u;
    let has_second = channel0 + 1u < p.kc;
    let channel1 = select(channel0, channel0 + 1u, has_second);
    let first = group * p.kc;
    return Turn(channel0, channel1, terms_of(first + channel0), terms_of(first + channel1), has_second);
}
// Four pixels of the turn's channels; those outside of the image, and of a channel that is none, count as zero.
struct Steps {
    b0: vec4<f32>, b1: vec4<f32>,
}
fn steps_at(turn: Turn, bases: Bases, pixel: vec4<u32>, inside: vec4<bool>) -> Steps {
    let inside1 = inside & vec4(turn.has_second);
    return Steps(
        select(vec4<f32>(), source(bases, turn.channel0, pixel, turn.terms0), inside),
        select(vec4<f32>(), source(bases, turn.channel1, pixel, turn.terms1), inside1),
    );
}
fn add_products(row: Row, steps: Steps, sum: vec4<f32>) -> vec4<f32> {
    return fma(vec4(row.y), steps.b1, fma(vec4(row.x), steps.b0, sum));
}
#endif
