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
