// Elements one by one.
alias Elem = f32;
