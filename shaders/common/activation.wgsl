// What a batch norm applies to its result: 0 nothing, 1 ReLU, 2 ReLU6.
// `scale` is deviation * gamma. One rounding less than with a product and a sum, and the same one wherever it is made.
fn norm(x: Elem, mean: Elem, scale: Elem, beta: Elem) -> Elem { return fma(x - mean, scale, beta); }
fn activated(v: Elem, activation: u32) -> Elem {
    let low = select(v, max(v, Elem(0.0)), activation != 0u);
    return or_nan(v, select(low, min(low, Elem(6.0)), activation == 2u));
}
// dy where the activation lets it pass.
fn passed(v: Elem, dy: Elem, activation: u32) -> Elem {
    let low = select(dy, Elem(0.0), v <= Elem(0.0));
    let both = select(low, Elem(0.0), v >= Elem(6.0));
    return select(select(low, both, activation == 2u), dy, activation == 0u);
}
