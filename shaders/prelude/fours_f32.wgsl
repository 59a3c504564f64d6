// Four elements as memory holds them.
alias Four = vec4<f32>;
fn of_four(four: Four) -> vec4<f32> {
    return four;
}
fn four_of(v: vec4<f32>) -> Four {
    return v;
}
