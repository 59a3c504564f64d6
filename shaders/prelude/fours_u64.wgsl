// Four elements in two words of 64 bits: software adapters go through memory word by word.
alias Four = vec2<u64>;
fn of_four(four: Four) -> vec4<f32> {
    let low = vec2<u32>(four);
    let high = vec2<u32>(four >> vec2(32u));
    return bitcast<vec4<f32>>(vec4(low.x, high.x, low.y, high.y));
}
fn four_of(v: vec4<f32>) -> Four {
    let bits = bitcast<vec4<u32>>(v);
    return vec2<u64>(bits.xz) | (vec2<u64>(bits.yw) << vec2(32u));
}
