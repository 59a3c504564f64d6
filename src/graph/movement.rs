//! Operations that move elements and compute nothing.

use std::ops::Range;
use std::panic::Location;

use super::{Op, Tensor};
use crate::shape::{MAX_RANK, Shape};

impl Tensor {
    /// Views the same elements in another shape; no memory is moved.
    #[track_caller]
    #[must_use]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Tensor {
        self.reshape_to(shape.into().dims(), Location::caller())
    }

    /// Flattens the dimensions from `from` on into one: `[b, c, h, w]`, 1 → `[b, c h w]`.
    #[track_caller]
    #[must_use]
    pub fn flatten(&self, from: usize) -> Tensor {
        let at = Location::caller();
        let dims = self.shape.dims();
        if from > dims.len() {
            self.trace.complain(format!("flatten from axis {from} of {}", self.shape), at);
            return Tensor { id: None, ..self.clone() };
        }
        let mut flat = dims[..from].to_vec();
        flat.push(dims[from..].iter().product());
        self.reshape_to(&flat, at)
    }

    /// Reorders dimensions: `y.dims[i] = x.dims[perm[i]]`.
    #[track_caller]
    #[must_use]
    pub fn permute(&self, perm: &[usize]) -> Tensor {
        self.one(Op::Permute(perm.to_vec()), &[self], Location::caller())
    }

    /// Swaps two dimensions.
    #[track_caller]
    #[must_use]
    pub fn transpose(&self, a: usize, b: usize) -> Tensor {
        let at = Location::caller();
        let mut perm: Vec<usize> = (0..self.shape.rank()).collect();
        if a >= perm.len() || b >= perm.len() {
            self.trace.complain(format!("transpose of axes {a} and {b} of {}", self.shape), at);
            return Tensor { id: None, ..self.clone() };
        }
        perm.swap(a, b);
        self.one(Op::Permute(perm), &[self], at)
    }

    /// Repeats along dimensions of length 1 until the shape is `shape`.
    #[track_caller]
    #[must_use]
    pub fn expand(&self, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        if shape == self.shape {
            return self.clone();
        }
        self.one(Op::Expand(shape), &[self], Location::caller())
    }

    /// Takes the indices `range` along `axis`; an empty range, such as `2..2`, gives an empty tensor.
    #[track_caller]
    #[must_use]
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Tensor {
        if range.start > range.end && self.id.is_some() {
            let Range { start, end } = range;
            let message = format!("slice {start}..{end} of {}: it ends before it starts", self.shape);
            return self.mistake(message, self.shape);
        }
        let len = range.end.saturating_sub(range.start);
        self.one(Op::Slice { axis, start: range.start, len }, &[self], Location::caller())
    }

    /// Pads with zeros along `axis`.
    #[track_caller]
    #[must_use]
    pub fn pad(&self, axis: usize, before: usize, after: usize) -> Tensor {
        let at = Location::caller();
        // Lengths that overflow are reported as too large.
        let len = self.dim(axis).saturating_add(before).saturating_add(after);
        self.one(Op::Place { axis, start: before, step: 1, len }, &[self], at)
    }

    /// Concatenates this tensor and others along `axis`.
    #[track_caller]
    #[must_use]
    pub fn concat(&self, others: &[&Tensor], axis: usize) -> Tensor {
        let all: Vec<&Tensor> = std::iter::once(self).chain(others.iter().copied()).collect();
        self.one(Op::Concat { axis }, &all, Location::caller())
    }

    /// Creates a tensor of this trace with all elements equal to `value`.
    #[track_caller]
    #[must_use]
    pub fn fill_like(&self, shape: impl Into<Shape>, value: f32) -> Tensor {
        self.one(Op::Fill { shape: shape.into(), value }, &[], Location::caller())
    }

    pub(super) fn reshape_to(&self, dims: &[usize], at: &'static Location<'static>) -> Tensor {
        match Shape::try_new(dims) {
            Some(shape) if shape == self.shape => self.clone(),
            Some(shape) => self.one(Op::Reshape(shape), &[self], at),
            None => {
                self.trace.complain(format!("reshape to {dims:?}: at most {MAX_RANK} dimensions"), at);
                Tensor { id: None, ..self.clone() }
            }
        }
    }
}
