// Elements one by one.
alias Elem = f32;
alias InMemory = f32;
fn from_memory(v: InMemory) -> Elem {
    return v;
}
fn to_memory(v: Elem) -> InMemory {
    return v;
}
