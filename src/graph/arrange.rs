//! Rearrangements, composed of reshapes, slices and concatenations.

use std::ops::Range;
use std::panic::Location;

use super::{Op, Tensor};

/// What lies around a tensor that is padded: `torch.nn.functional.pad`'s modes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Padding {
    /// This number.
    Constant(f32),
    /// The elements next to the edge, mirrored; the edge itself is not repeated.
    Reflect,
    /// The element at the edge.
    Replicate,
    /// The elements at the other end.
    Circular,
}

impl Tensor {
    /// Inserts a dimension of length 1 before `axis`.
    #[track_caller]
    #[must_use]
    pub fn unsqueeze(&self, axis: usize) -> Tensor {
        let mut dims = self.shape.dims().to_vec();
        if axis > dims.len() {
            return self.mistake(format!("unsqueeze before axis {axis} of {}", self.shape), self.shape);
        }
        dims.insert(axis, 1);
        self.reshape_to(&dims, Location::caller())
    }

    /// Removes a dimension of length 1.
    #[track_caller]
    #[must_use]
    pub fn squeeze(&self, axis: usize) -> Tensor {
        let mut dims = self.shape.dims().to_vec();
        if self.id.is_none() {
            return self.clone();
        }
        if dims.get(axis) != Some(&1) {
            return self.mistake(
                format!("squeeze of axis {axis} of {}: its length is not 1", self.shape),
                self.shape,
            );
        }
        dims.remove(axis);
        self.reshape_to(&dims, Location::caller())
    }

    /// Concatenates tensors of this shape along a new dimension before `axis`.
    #[track_caller]
    #[must_use]
    pub fn stack(&self, others: &[&Tensor], axis: usize) -> Tensor {
        let others: Vec<Tensor> = others.iter().map(|x| x.unsqueeze(axis)).collect();
        self.unsqueeze(axis).concat(&others.iter().collect::<Vec<_>>(), axis)
    }

    /// Cuts into parts of these lengths along `axis`; they add up to its length.
    #[track_caller]
    #[must_use]
    pub fn split(&self, axis: usize, lengths: &[usize]) -> Vec<Tensor> {
        let sum = lengths.iter().fold(0usize, |sum, len| sum.saturating_add(*len));
        if self.id.is_some() && (axis >= self.shape.rank() || sum != self.dim(axis)) {
            let broken = self
                .mistake(format!("split of {} along axis {axis} into {lengths:?}", self.shape), self.shape);
            return vec![broken; lengths.len()];
        }
        let mut start = 0;
        let part = |len: &usize| {
            let range = start..start + len;
            start = range.end;
            self.slice(axis, range)
        };
        lengths.iter().map(part).collect()
    }

    /// Cuts into `count` parts along `axis`, the last one shorter where the length is not a multiple; fewer parts where
    /// there are not so many elements (`torch.chunk`).
    #[track_caller]
    #[must_use]
    pub fn chunk(&self, axis: usize, count: usize) -> Vec<Tensor> {
        let whole = self.dim(axis);
        if count == 0 || whole == 0 {
            let message = format!("chunk of {} along axis {axis} into {count} parts", self.shape);
            return vec![self.mistake(message, self.shape)];
        }
        let len = whole.div_ceil(count);
        let lengths: Vec<usize> = (0..whole).step_by(len).map(|start| len.min(whole - start)).collect();
        self.split(axis, &lengths)
    }

    /// Repeats the whole tensor `times[i]` times along dimension `i` (`torch.Tensor.repeat`); more numbers than
    /// dimensions add dimensions in front.
    #[track_caller]
    #[must_use]
    pub fn repeat(&self, times: &[usize]) -> Tensor {
        let at = Location::caller();
        let Some(missing) = times.len().checked_sub(self.shape.rank()) else {
            return self.mistake(
                format!("repeat of {} by {times:?}: a number for each dimension", self.shape),
                self.shape,
            );
        };
        let mut dims = vec![1; missing];
        dims.extend(self.shape.dims());
        let mut x = self.reshape_to(&dims, at);
        for (axis, &count) in times.iter().enumerate().filter(|(_, count)| **count != 1) {
            let outer: usize = dims[..axis].iter().product();
            let inner: usize = dims[axis..].iter().product();
            let wide = x.reshape([outer, 1, inner]).expand([outer, count, inner]);
            dims[axis] = dims[axis].saturating_mul(count);
            x = wide.reshape_to(&dims, at);
        }
        x
    }

    /// Every `step`th element of `range` along `axis`.
    #[track_caller]
    #[must_use]
    pub fn slice_step(&self, axis: usize, range: Range<usize>, step: usize) -> Tensor {
        if step == 1 {
            return self.slice(axis, range);
        }
        let count = range.end.saturating_sub(range.start);
        if step == 0 || isize::try_from(step).is_err() || range.end > self.dim(axis) {
            let message = format!("slice {range:?} by {step} along axis {axis} of {}", self.shape);
            return self.mistake(message, self.shape);
        }
        let len = count.div_ceil(step);
        self.one(
            Op::Stride { axis, start: range.start, step: step as isize, len },
            &[self],
            Location::caller(),
        )
    }

    /// Reverses the elements along `axis`.
    #[track_caller]
    #[must_use]
    pub fn flip(&self, axis: usize) -> Tensor {
        let len = self.dim(axis);
        if len == 0 {
            return self.clone();
        }
        self.one(Op::Stride { axis, start: len - 1, step: -1, len }, &[self], Location::caller())
    }

    /// Moves the elements by `shift` along `axis`; those past the end come in at the start.
    #[track_caller]
    #[must_use]
    pub fn roll(&self, axis: usize, shift: isize) -> Tensor {
        let len = self.dim(axis);
        // A dimension has less than `isize::MAX` elements.
        let cut = (-shift).rem_euclid(len.max(1) as isize) as usize;
        if cut == 0 {
            return self.clone();
        }
        self.slice(axis, cut..len).concat(&[&self.slice(axis, 0..cut)], axis)
    }

    /// Pads along `axis` in one of `torch.nn.functional.pad`'s modes. [`Tensor::pad`] pads with zeros.
    #[track_caller]
    #[must_use]
    pub fn pad_with(&self, axis: usize, before: usize, after: usize, mode: Padding) -> Tensor {
        let len = self.dim(axis);
        let most = match mode {
            Padding::Constant(_) => usize::MAX,
            Padding::Replicate if len > 0 => usize::MAX,
            Padding::Reflect => len.saturating_sub(1),
            Padding::Replicate | Padding::Circular => len,
        };
        if self.id.is_some() && (before > most || after > most || axis >= self.shape.rank()) {
            let message =
                format!("{mode:?} padding of {} along axis {axis} by {before} and {after}", self.shape);
            return self.mistake(message, self.shape);
        }
        let part = |range: Range<usize>| self.slice(axis, range);
        let [left, right] = match mode {
            Padding::Constant(0.0) => return self.pad(axis, before, after),
            Padding::Constant(value) => {
                [before, after].map(|count| self.fill_like(self.shape.with(axis, count), value))
            }
            Padding::Reflect => [
                part(1..before + 1).flip(axis),
                part(len.max(after + 1) - 1 - after..len.max(1) - 1).flip(axis),
            ],
            Padding::Replicate => {
                let edge = |at: usize, count: usize| part(at..at + 1).expand(self.shape.with(axis, count));
                [edge(0, before), edge(len.max(1) - 1, after)]
            }
            Padding::Circular => [part(len - before..len), part(0..after)],
        };
        match (before, after) {
            (0, 0) => self.clone(),
            (_, 0) => left.concat(&[self], axis),
            (0, _) => self.concat(&[&right], axis),
            _ => left.concat(&[self, &right], axis),
        }
    }

    /// The elements on and below the diagonal `offset` of the last two dimensions; the others are 0.
    #[track_caller]
    #[must_use]
    pub fn tril(&self, offset: isize) -> Tensor {
        match self.diagonal_distance() {
            Some(right) => self.masked(&right.less_equal(&self.fill_like([], offset as f32))),
            None => self.clone(),
        }
    }

    /// The elements on and above the diagonal `offset` of the last two dimensions; the others are 0.
    #[track_caller]
    #[must_use]
    pub fn triu(&self, offset: isize) -> Tensor {
        match self.diagonal_distance() {
            Some(right) => self.masked(&right.greater_equal(&self.fill_like([], offset as f32))),
            None => self.clone(),
        }
    }

    /// `[n, c r², h, w] → [n, c, h r, w r]` (Shi et al. 2016), `torch.nn.PixelShuffle`.
    #[track_caller]
    #[must_use]
    pub fn pixel_shuffle(&self, r: usize) -> Tensor {
        let [n, c, h, w] = [0, 1, 2, 3].map(|axis| self.dim(axis));
        if self.shape.rank() != 4 || r == 0 || r > 1 << 12 || !c.is_multiple_of(r * r) {
            return self.mistake(format!("pixel_shuffle of {} by {r}", self.shape), self.shape);
        }
        let parts = self.reshape([n, c / (r * r), r, r, h, w]).permute(&[0, 1, 4, 2, 5, 3]);
        parts.reshape([n, c / (r * r), h * r, w * r])
    }

    /// `[n, c, h, w] → [n, c r², h / r, w / r]`: the inverse of [`Tensor::pixel_shuffle`].
    #[track_caller]
    #[must_use]
    pub fn pixel_unshuffle(&self, r: usize) -> Tensor {
        let [n, c, h, w] = [0, 1, 2, 3].map(|axis| self.dim(axis));
        if self.shape.rank() != 4 || r == 0 || r > 1 << 12 || !h.is_multiple_of(r) || !w.is_multiple_of(r) {
            return self.mistake(format!("pixel_unshuffle of {} by {r}", self.shape), self.shape);
        }
        let parts = self.reshape([n, c, h / r, r, w / r, r]).permute(&[0, 1, 3, 5, 2, 4]);
        parts.reshape([n, c.saturating_mul(r * r), h / r, w / r])
    }

    /// Column minus row of each element of the last two dimensions.
    #[track_caller]
    fn diagonal_distance(&self) -> Option<Tensor> {
        let dims = self.shape.dims();
        if dims.len() < 2 {
            self.trace.complain(
                format!("the diagonal of {}: two dimensions are needed", self.shape),
                Location::caller(),
            );
            return None;
        }
        let [rows, columns] = [dims[dims.len() - 2], dims[dims.len() - 1]];
        Some(self.indices_like([1, columns], 1).sub(&self.indices_like([rows, 1], 0)))
    }
}
