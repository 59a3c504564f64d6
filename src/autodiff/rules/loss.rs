//! Softmax saves its output; cross-entropy saves the logits and two numbers for each row.

use std::panic::Location;

use super::Site;
use crate::graph::{Op, Tensor};

/// `dx = y (dy - Σ dy y)`, or for log-softmax `dy - eʸ Σ dy`.
pub(super) fn softmax(site: &Site, log: bool) -> Tensor {
    let (y, dy) = (&site.outputs[0], site.dy());
    dy.one(Op::SoftmaxGrad { log }, &[y, dy], Location::caller())
}

/// `dlogits = (softmax(logits) - onehot(label)) dloss`
pub(super) fn cross_entropy(site: &Site) -> Tensor {
    let (logits, labels, lse) = (&site.inputs[0], &site.inputs[1], &site.outputs[1]);
    logits.one(Op::CrossEntropyGrad, &[logits, labels, lse, site.dy()], Location::caller())
}
