//! Softmax over rows and its gradient.

use super::Array;

/// Returns `max x` and `ln Σ e^(x - max)`.
pub(super) fn log_sum_exp(row: &[f64]) -> (f64, f64) {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (top, row.iter().map(|v| (v - top).exp()).sum::<f64>().ln())
}

pub(super) fn softmax(x: Array, log: bool) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.data.len());
    for row in x.data.chunks(x.shape.last().max(1)) {
        let (top, rest) = log_sum_exp(row);
        // Subtracts in two steps: added to a large maximum, the logarithm would lose its precision.
        y.extend(row.iter().map(|v| (v - top) - rest).map(|v| if log { v } else { v.exp() }));
    }
    y
}

pub(super) fn softmax_grad(y: Array, dy: Array, log: bool) -> Vec<f64> {
    let cols = y.shape.last().max(1);
    let mut dx = Vec::with_capacity(y.data.len());
    for (y, dy) in y.data.chunks(cols).zip(dy.data.chunks(cols)) {
        let sum: f64 = if log { dy.iter().sum() } else { dy.iter().zip(y).map(|(d, s)| d * s).sum() };
        let one = |(&y, &dy): (&f64, &f64)| if log { dy - y.exp() * sum } else { y * (dy - sum) };
        dx.extend(y.iter().zip(dy).map(one));
    }
    dx
}
