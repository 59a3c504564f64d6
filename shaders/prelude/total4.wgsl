// The sum of what an Elem holds.
fn total(v: Elem) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}
