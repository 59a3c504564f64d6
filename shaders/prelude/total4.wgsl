// The sum of what an Elem holds, and its first element.
fn total(v: Elem) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}
fn one_of(v: Elem) -> f32 {
    return v.x;
}
