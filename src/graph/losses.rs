//! Losses. Each is a scalar: the mean over the rows or elements that count.

use std::panic::Location;

use super::{Binary, Indices, Op, Tensor};
use crate::shape::Shape;

/// Rows of the largest tile of a product.
const ROWS: usize = 128;

impl Tensor {
    /// Cross-entropy of logits `[.., classes]` with class indices `[..]`: the mean over the rows with a label
    /// other than [`IGNORE`](super::IGNORE). Probabilities are never stored.
    #[track_caller]
    #[must_use]
    pub fn cross_entropy(&self, labels: &Tensor) -> Tensor {
        let at = Location::caller();
        if let Some(classes) = self.shape.dims().last() {
            self.check_labels("cross_entropy", labels, *classes, at);
        }
        let rows = labels.shape.numel() as usize;
        let leading = self.shape.dims().len().saturating_sub(1);
        let (logits, labels) = match self.shape.dims().starts_with(labels.shape.dims()) {
            true if leading > 1 && labels.shape.rank() == leading => {
                self.trace.called_at(at, || (self.reshape([rows, self.shape.last()]), labels.reshape([rows])))
            }
            _ => (self.clone(), labels.clone()),
        };
        let losses = self.one(Op::CrossEntropy, &[&logits, &labels], at);
        let share = labels.one(Op::LabelShare, &[&labels], at);
        losses.sum(&[]).mul(&share)
    }

    /// Reports labels that are declared for more classes than there are scores.
    pub(super) fn check_labels(
        &self,
        what: &str,
        labels: &Tensor,
        classes: usize,
        at: &'static Location<'static>,
    ) {
        if let Some(Indices::Labels(below) | Indices::Ids(below)) = labels.indices()
            && below as usize > classes
        {
            self.trace.complain(format!("{what}: labels of {below} classes, scores of {classes}"), at);
        }
    }

    /// [`Tensor::cross_entropy`] of the logits `self · weightᵀ`: `self [n, d]`, `weight [v, d]`,
    /// `labels [n]`. The rows are split into at most `chunks`, of a multiple of 128 rows if they have more: then tiles
    /// are whole, and slices start where bindings can. The plan frees the logits of each chunk before it
    /// allocates those of the next: `[n / chunks, v]` logits are alive at once instead of `[n, v]`.
    #[track_caller]
    #[must_use]
    pub fn linear_cross_entropy(&self, weight: &Tensor, labels: &Tensor, chunks: usize) -> Tensor {
        self.linear_cross_entropy_of(weight, labels, chunks, &|logits| logits)
    }

    /// [`Tensor::linear_cross_entropy`] of a function of the logits, of each by itself.
    #[track_caller]
    pub(crate) fn linear_cross_entropy_of(
        &self,
        weight: &Tensor,
        labels: &Tensor,
        chunks: usize,
        function: &dyn Fn(Tensor) -> Tensor,
    ) -> Tensor {
        let at = Location::caller();
        if [self, weight, labels].iter().any(|operand| operand.id.is_none()) {
            return Tensor { id: None, ..self.clone() };
        }
        let rows = self.dim(0);
        let matrices = self.shape.rank() == 2 && weight.shape == [weight.dim(0), self.dim(1)].into();
        if chunks == 0 || chunks > rows.max(1) || !matrices || labels.shape != [rows].into() {
            self.trace.complain(
                format!(
                    "linear_cross_entropy of {} with weight {} and labels {} in {chunks} chunks",
                    self.shape, weight.shape, labels.shape
                ),
                at,
            );
            return Tensor { id: None, ..self.clone() };
        }
        if chunks == 1 {
            return function(self.matmul_transposed(weight, false, true)).cross_entropy(labels);
        }
        self.check_labels("cross_entropy", labels, weight.dim(0), at);
        let share = labels.one(Op::LabelShare, &[labels], at);
        let length = rows.div_ceil(chunks);
        let length = if length > ROWS { length.next_multiple_of(ROWS) } else { length };
        let sum = |start: usize| {
            let part = start..(start + length).min(rows);
            let logits = function(self.slice(0, part.clone()).matmul_transposed(weight, false, true));
            logits.one(Op::CrossEntropy, &[&logits, &labels.slice(0, part)], at).sum(&[])
        };
        let sums = || (0..rows).step_by(length).map(sum).reduce(|sum, next| sum.add(&next));
        self.trace.called_at(at, sums).expect("at least one chunk").mul(&share)
    }

    /// Mean squared error over all elements; shapes equal.
    #[track_caller]
    #[must_use]
    pub fn mse(&self, target: &Tensor) -> Tensor {
        if self.shape() != target.shape() {
            return self.unequal("mse: predictions", target);
        }
        self.sub(target).square().mean(&[])
    }

    /// Binary cross-entropy of logits with targets in [0, 1]: the mean over all elements; shapes equal.
    #[track_caller]
    #[must_use]
    pub fn bce_with_logits(&self, target: &Tensor) -> Tensor {
        if self.shape() != target.shape() {
            return self.unequal("bce_with_logits: logits", target);
        }
        self.one(Op::Binary(Binary::BceLogits), &[self, target], Location::caller()).mean(&[])
    }

    /// Reports unequal shapes. A loss of operands that would broadcast is nearly always a mistake: `[n, 1]`
    /// with `[n]` compares every prediction with every target.
    #[track_caller]
    pub(super) fn unequal(&self, what: &str, target: &Tensor) -> Tensor {
        let (own, other) = (self.shape(), target.shape());
        if self.id.is_none() || target.id.is_none() {
            return Tensor { id: None, shape: Shape::from([]), ..self.clone() };
        }
        self.mistake(format!("{what} {own} and targets {other} differ; reshape one to the other"), [])
    }
}
