//! Cross-entropy on class indices.

use super::Array;
use super::rows::log_sum_exp;
use crate::graph::IGNORE;

fn ignored(label: f64) -> bool {
    label == f64::from(IGNORE)
}

/// Returns losses and log-sum-exps of the rows.
pub(super) fn cross_entropy(logits: Array, labels: Array) -> Vec<Vec<f64>> {
    let (mut losses, mut sums) = (Vec::new(), Vec::new());
    for (row, &label) in logits.data.chunks(logits.shape.last()).zip(labels.data) {
        let (top, rest) = log_sum_exp(row);
        let loss = if ignored(label) { 0.0 } else { (top - row[label as usize]) + rest };
        losses.push(loss);
        sums.extend([top, rest]);
    }
    vec![losses, sums]
}

/// Returns the gradient of the logits. `dloss` has one element for each row, or one for all.
pub(super) fn cross_entropy_grad(logits: Array, labels: Array, lse: Array, dloss: Array) -> Vec<f64> {
    let cols = logits.shape.last();
    let slope = |(i, &x): (usize, &f64)| {
        let (row, label) = (i / cols, labels.data[i / cols]);
        let target = f64::from(u8::from((i % cols) as f64 == label));
        if ignored(label) {
            0.0
        } else {
            ((x - lse.data[2 * row] - lse.data[2 * row + 1]).exp() - target)
                * dloss.data[row % dloss.data.len()]
        }
    };
    logits.data.iter().enumerate().map(slope).collect()
}

pub(super) fn label_share(labels: Array) -> Vec<f64> {
    let counted = labels.data.iter().filter(|label| !ignored(**label)).count();
    vec![1.0 / counted.max(1) as f64]
}
