// Elements one by one.
alias Elem = f32;
alias InMemory = f32;
fn from_memory(v: InMemory) -> Elem {
    return v;
}
// `r`, or `v` where that is NaN: bits are compared, because compilers may assume that there is none.
fn or_nan(v: Elem, r: Elem) -> Elem {
    return select(r, v, (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u);
}
fn to_memory(v: Elem) -> InMemory {
    return v;
}
