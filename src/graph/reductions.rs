//! Sums, means and maxima over axes.

use std::panic::Location;

use super::{Op, Reduction, Tensor};

impl Tensor {
    /// Sum over `axes`, which are removed. With no axes: over all, to a scalar.
    #[track_caller]
    #[must_use]
    pub fn sum(&self, axes: &[usize]) -> Tensor {
        self.reduce(Reduction::Sum, axes)
    }

    /// Mean over `axes`, which are removed. With no axes: over all, to a scalar.
    #[track_caller]
    #[must_use]
    pub fn mean(&self, axes: &[usize]) -> Tensor {
        self.reduce(Reduction::Mean, axes)
    }

    /// Maximum over `axes`, which are removed (`torch.amax`: equal maxima share the gradient). With no axes:
    /// over all, to a scalar.
    #[track_caller]
    #[must_use]
    pub fn max(&self, axes: &[usize]) -> Tensor {
        self.reduce(Reduction::Max, axes)
    }

    /// Reduces over `axes` and keeps them with length 1. With no axes: over all.
    #[track_caller]
    #[must_use]
    pub fn reduce_keep(&self, kind: Reduction, axes: &[usize]) -> Tensor {
        let at = Location::caller();
        let rank = self.shape.rank();
        let all: Vec<usize> = (0..rank).collect();
        let axes = if axes.is_empty() { &all } else { axes };
        if let Some(axis) = axes.iter().find(|&&axis| axis >= rank) {
            self.trace.complain(format!("{kind:?} over axis {axis} of {}", self.shape), at);
            return Tensor { id: None, ..self.clone() };
        }
        let mask = axes.iter().fold(0u8, |mask, axis| mask | 1 << axis);
        // Reducing axes of length 1 changes nothing.
        if axes.iter().all(|&axis| self.dim(axis) == 1) {
            return if kind == Reduction::SumSquares { self.square() } else { self.clone() };
        }
        self.one(Op::Reduce { kind, axes: mask }, &[self], at)
    }

    #[track_caller]
    fn reduce(&self, kind: Reduction, axes: &[usize]) -> Tensor {
        let at = Location::caller();
        let kept = self.reduce_keep(kind, axes);
        let gone = |axis: usize| axes.is_empty() || axes.contains(&axis);
        let dims: Vec<usize> =
            (0..kept.shape.rank()).filter(|&axis| !gone(axis)).map(|axis| kept.dim(axis)).collect();
        kept.reshape_to(&dims, at)
    }

    /// Sums the gradient of a broadcast result to the shape of the operand.
    #[track_caller]
    pub(crate) fn sum_to(&self, shape: crate::shape::Shape) -> Tensor {
        if self.shape == shape {
            return self.clone();
        }
        let missing = self.shape.rank() - shape.rank();
        let axes: Vec<usize> = (0..self.shape.rank())
            .filter(|&axis| axis < missing || (shape.dims()[axis - missing] == 1 && self.dim(axis) != 1))
            .collect();
        let summed = if axes.is_empty() { self.clone() } else { self.reduce_keep(Reduction::Sum, &axes) };
        summed.reshape_to(shape.dims(), Location::caller())
    }
}
