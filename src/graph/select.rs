//! Elements by index: gathers, sorted rows, positions of the largest.

use std::panic::Location;

use super::{Indices, Op, Reduction, Tensor};
use crate::dtype::DType;
use crate::shape::Shape;

impl Tensor {
    /// The same values without a gradient (`torch.Tensor.detach`). No memory is moved.
    #[track_caller]
    #[must_use]
    pub fn detach(&self) -> Tensor {
        self.one(Op::Detach, &[self], Location::caller())
    }

    /// The sum over the ranks that compute a layer together.
    #[track_caller]
    pub(crate) fn sum_ranks(&self) -> Tensor {
        self.one(Op::SumRanks { of_gradient: false }, &[self], Location::caller())
    }

    /// Creates a tensor of this trace with the index along `axis` as each element: with shape `[n]` and axis 0,
    /// `torch.arange(n)`.
    #[track_caller]
    #[must_use]
    pub fn indices_like(&self, shape: impl Into<Shape>, axis: usize) -> Tensor {
        self.one(Op::Iota { shape: shape.into(), axis }, &[], Location::caller())
    }

    /// `y[i][j] = x[ids[i][j]][j]` along `axis` 0, and likewise for others (`torch.gather`). The other dimensions of
    /// `ids`, `u32`, are at most those of `self`. An id past the end reads the last element; feeding one to ids
    /// declared with [`Trace::ids`](super::Trace::ids) is an error.
    #[track_caller]
    #[must_use]
    pub fn gather(&self, axis: usize, ids: &Tensor) -> Tensor {
        let at = Location::caller();
        self.check_ids("gather", axis, ids, at);
        if self.id.is_none() || ids.shape.rank() != self.shape.rank() {
            return self.one(Op::Gather { axis }, &[self, ids], at);
        }
        let shorter = |x: Tensor, other: usize| match ids.dim(other) {
            len if other != axis && len < x.dim(other) => x.slice(other, 0..len),
            _ => x,
        };
        let x = (0..self.shape.rank()).fold(self.clone(), shorter);
        self.one(Op::Gather { axis }, &[&x, ids], at)
    }

    /// This tensor with `source` added at `ids` along `axis`: `y[ids[i][j]][j] += source[i][j]` along axis 0
    /// (`torch.scatter_add`). The dimensions of `ids`, `u32`, are at most those of `source`, and but for `axis` those of
    /// `self`; other elements of `source` are not read. Sums are made in the order of the ids, the same at every run.
    #[track_caller]
    #[must_use]
    pub fn scatter_add(&self, axis: usize, ids: &Tensor, source: &Tensor) -> Tensor {
        let at = Location::caller();
        self.check_ids("scatter_add", axis, ids, at);
        let [whole, some, read] = [self, ids, source].map(|x| x.shape.dims());
        let fits = |i: usize| some[i] <= read[i] && (i == axis || some[i] <= whole[i]);
        let same_rank = whole.len() == some.len() && read.len() == some.len() && axis < some.len();
        let all = [self, ids, source].iter().all(|x| x.id.is_some());
        if all && !(same_rank && (0..some.len()).all(fits)) {
            let message = format!("scatter_add to {} of {} at ids {}", self.shape, source.shape, ids.shape);
            return self.mistake(message, self.shape);
        }
        self.trace.called_at(at, || {
            let shorter = |x: Tensor, i: usize| match some[i] {
                len if len < x.dim(i) => x.slice(i, 0..len),
                _ => x,
            };
            let source = (0..some.len()).fold(source.clone(), shorter);
            let sums = self.one(Op::ScatterAdd { axis, len: self.dim(axis) }, &[ids, &source], at);
            let longer = |x: Tensor, i: usize| match (i != axis).then(|| whole[i] - some[i]) {
                None | Some(0) => x,
                Some(more) => x.pad(i, 0, more),
            };
            self.add(&if all { (0..some.len()).fold(sums, longer) } else { sums })
        })
    }

    /// The slices at `ids [k]`, `u32`, along `axis` (`torch.index_select`): `[.., n, ..] → [.., k, ..]`.
    #[track_caller]
    #[must_use]
    pub fn index_select(&self, axis: usize, ids: &Tensor) -> Tensor {
        let at = Location::caller();
        if self.shape.rank() == 2 && axis == 0 && ids.shape.rank() == 1 {
            return self.embedding(ids);
        }
        self.check_ids("index_select", axis, ids, at);
        if ids.shape.rank() != 1 || axis >= self.shape.rank() {
            let message = format!("index_select along axis {axis} of {} by ids {}", self.shape, ids.shape);
            return self.mistake(message, self.shape);
        }
        let line = self.shape.ones().with(axis, ids.dim(0));
        let ids = ids.reshape(line);
        self.one(Op::Gather { axis }, &[self, &ids], at)
    }

    /// `ids [..]`, `u32` → `f32 [.., classes]`: 1 at each id, else 0.
    #[track_caller]
    #[must_use]
    pub fn one_hot(&self, classes: usize) -> Tensor {
        let ids = self.cast(DType::F32);
        ids.unsqueeze(ids.shape.rank()).equal(&self.indices_like([classes], 0))
    }

    /// The indices, `u32`, that sort the elements along `axis`; equal elements keep their order, and NaN counts as the
    /// largest number. Each element is compared with all others of its line.
    #[track_caller]
    #[must_use]
    pub fn argsort(&self, axis: usize, descending: bool) -> Tensor {
        let at = Location::caller();
        self.along_last(axis, at, |x| x.one(Op::ArgSort { descending }, &[x], at))
    }

    /// The elements sorted along `axis`, and the index, `u32`, of each: as [`Tensor::argsort`]. Gradients go to where
    /// the elements came from.
    #[track_caller]
    #[must_use]
    pub fn sort(&self, axis: usize, descending: bool) -> (Tensor, Tensor) {
        let ids = self.argsort(axis, descending);
        (self.gather(axis, &ids), ids)
    }

    /// The `k` largest elements along `axis`, or the smallest, in order, and the index, `u32`, of each.
    #[track_caller]
    #[must_use]
    pub fn topk(&self, k: usize, axis: usize, largest: bool) -> (Tensor, Tensor) {
        let ids = self.argsort(axis, largest).slice(axis, 0..k);
        (self.gather(axis, &ids), ids)
    }

    /// The index, `u32`, of the first maximum along `axis`, which is removed, or of the first NaN.
    #[track_caller]
    #[must_use]
    pub fn argmax(&self, axis: usize) -> Tensor {
        let at = Location::caller();
        // Positions are compared as floats.
        if axis >= self.shape.rank() || self.dim(axis) == 0 || self.dim(axis) > 1 << 24 {
            let message = format!("argmax along axis {axis} of {}: 1 to 2^24 elements", self.shape);
            return self.mistake(message, self.shape);
        }
        let x = self.detach();
        let most = x.reduce_keep(Reduction::Max, &[axis]);
        let found = x.equal(&most).maximum(&x.not_equal(&x));
        let indices = x.indices_like(self.shape.ones().with(axis, self.dim(axis)), axis);
        let len = x.fill_like([], self.dim(axis) as f32);
        let first = found.where_cond(&indices, &len).min(&[axis]).cast(DType::U32);
        let dims: Vec<usize> =
            (0..self.shape.rank()).filter(|other| *other != axis).map(|other| self.dim(other)).collect();
        first.reshape_to(&dims, at)
    }

    /// The index, `u32`, of the first minimum along `axis`, which is removed, or of the first NaN.
    #[track_caller]
    #[must_use]
    pub fn argmin(&self, axis: usize) -> Tensor {
        self.neg().argmax(axis)
    }

    /// Applies `body` with `axis` as the last dimension.
    pub(super) fn along_last(
        &self,
        axis: usize,
        at: &'static Location<'static>,
        body: impl Fn(&Tensor) -> Tensor,
    ) -> Tensor {
        let last = self.shape.rank().saturating_sub(1);
        if axis > last || self.shape.rank() == 0 {
            self.trace.complain(format!("axis {axis} of {}", self.shape), at);
            return Tensor { id: None, ..self.clone() };
        }
        if axis == last {
            return self.trace.called_at(at, || body(self));
        }
        self.trace.called_at(at, || body(&self.transpose(axis, last)).transpose(axis, last))
    }

    /// Reports indices that are declared for more elements than `axis` has.
    fn check_ids(&self, what: &str, axis: usize, ids: &Tensor, at: &'static Location<'static>) {
        match ids.indices() {
            Some(Indices::Ids(below)) if below as usize > self.dim(axis) => {
                let message = format!("{what}: ids up to {} along axis {axis} of {}", below - 1, self.shape);
                self.trace.complain(message, at);
            }
            Some(Indices::Labels(_)) => {
                let message =
                    format!("{what} by labels, which may be u32::MAX: declare the input with `Trace::ids`");
                self.trace.complain(message, at);
            }
            _ => {}
        }
    }
}
