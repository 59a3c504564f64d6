// The sum of what an Elem holds, and its first element.
fn total(v: Elem) -> f32 {
    return v;
}
fn one_of(v: Elem) -> f32 {
    return v;
}
