// Elements in fours. Every tensor's memory is a multiple of 16 bytes, so the last four may reach into its padding.
alias Elem = vec4<f32>;
alias InMemory = vec4<f32>;
fn from_memory(v: InMemory) -> Elem {
    return v;
}
fn to_memory(v: Elem) -> InMemory {
    return v;
}
