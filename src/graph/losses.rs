//! Losses, each a scalar: the mean over what counts.

use std::panic::Location;

use super::{Binary, Op, Tensor};

impl Tensor {
    /// Cross-entropy of logits `[n, classes]` with class indices `[n]`, the mean over the rows whose label is not
    /// [`IGNORE`](super::IGNORE). Probabilities are never stored.
    #[track_caller]
    #[must_use]
    pub fn cross_entropy(&self, labels: &Tensor) -> Tensor {
        let at = Location::caller();
        let losses = self.trace.emit(Op::CrossEntropy, &[self, labels], at).swap_remove(0);
        let share = labels.one(Op::LabelShare, &[labels], at);
        losses.sum(&[]).mul(&share)
    }

    /// Mean squared error, shapes equal or broadcast.
    #[track_caller]
    #[must_use]
    pub fn mse(&self, target: &Tensor) -> Tensor {
        self.sub(target).square().mean(&[])
    }

    /// Binary cross-entropy of logits with targets in [0, 1], the mean over all elements; shapes equal.
    #[track_caller]
    #[must_use]
    pub fn bce_with_logits(&self, target: &Tensor) -> Tensor {
        let at = Location::caller();
        if self.shape() != target.shape() {
            let message =
                format!("bce_with_logits: logits {} and targets {} differ", self.shape(), target.shape());
            self.trace.complain(message, at);
        }
        self.one(Op::Binary(Binary::BceLogits), &[self, target], at).mean(&[])
    }
}
