// The bias of a convolution, or zero
// where it has none.
#if BIAS
// A bias for each channel.
@group(0) @binding(4) var<storage, read_write> bias: array<f32>;
fn bias_of(channel: u32) -> f32 { return bias[channel]; }
#else
// No bias.
fn bias_of(channel: u32) -> f32 { return 0.0; }
#endif
