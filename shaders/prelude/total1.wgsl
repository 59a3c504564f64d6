// The sum of what an Elem holds.
fn total(v: Elem) -> f32 {
    return v;
}
