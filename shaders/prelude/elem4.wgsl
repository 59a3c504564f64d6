// Elements in fours. Every tensor's memory is a multiple of 16 bytes, so the last four may reach into its padding.
alias Elem = vec4<f32>;
alias InMemory = vec4<f32>;
fn from_memory(v: InMemory) -> Elem {
    return v;
}
// `r`, or `v` where that is NaN: bits are compared, because compilers may assume that there is none.
fn or_nan(v: Elem, r: Elem) -> Elem {
    return select(r, v, (bitcast<vec4<u32>>(v) & vec4(0x7fffffffu)) > vec4(0x7f800000u));
}
fn to_memory(v: Elem) -> InMemory {
    return v;
}
