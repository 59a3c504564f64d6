// No bias.
fn bias_of(channel: u32) -> f32 {
    return 0.0;
}
