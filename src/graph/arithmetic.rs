//! Matrix products, softmax, casts and dropout.

use std::panic::Location;

use super::{Mode, Op, Tensor, Unary};
use crate::dtype::DType;
use crate::shape::Shape;

impl Tensor {
    /// `A · B`: `[.., m, k] · [.., k, n] → [.., m, n]`; leading dimensions broadcast. A vector `[k]` is a row on the left
    /// and a column on the right, and has no dimension in the result, as with `torch.matmul`.
    #[track_caller]
    #[must_use]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        let floats = self.dtype != DType::U32 && other.dtype != DType::U32;
        let inner = other.dim(other.shape.rank().saturating_sub(2));
        match (self.shape.rank(), other.shape.rank()) {
            _ if !floats || self.shape.last() != inner => self.matmul_transposed(other, false, false),
            (1, 1) => self.mul(other).sum(&[0]),
            (1, rank) if rank > 1 => {
                let y = self.unsqueeze(0).matmul_transposed(other, false, false);
                y.squeeze(y.shape.rank().saturating_sub(2))
            }
            (rank, 1) if rank > 1 => {
                let y = self.matmul_transposed(&other.unsqueeze(1), false, false);
                y.squeeze(y.shape.rank().saturating_sub(1))
            }
            _ => self.matmul_transposed(other, false, false),
        }
    }

    /// `op(A) · op(B)`, where op transposes the last two dimensions if its flag is set. The transpose does
    /// not move memory.
    #[track_caller]
    #[must_use]
    pub fn matmul_transposed(&self, other: &Tensor, ta: bool, tb: bool) -> Tensor {
        let at = Location::caller();
        // A batch times one matrix is recorded as a single product over all rows, so its gradient is a single
        // product too.
        if !ta && self.shape.rank() > 2 && other.shape.rank() == 2 {
            let (dims, k) = (self.shape.dims(), self.shape.last());
            let rows = dims[..dims.len() - 1].iter().product::<usize>();
            let flat = self.reshape([rows, k]);
            let product = flat.one(Op::MatMul { ta, tb, then: None }, &[&flat, other], at);
            let mut out = dims.to_vec();
            *out.last_mut().expect("rank is above 2") = product.shape.last();
            return product.reshape_to(&out, at);
        }
        let (a, b) = (self.with_batches_of(other), other.with_batches_of(self));
        self.one(Op::MatMul { ta, tb, then: None }, &[&a, &b], at)
    }

    /// Expands the batch dimensions where they broadcast partially. Kernels step through batches with one
    /// stride, so an operand has either all batches or one.
    #[track_caller]
    fn with_batches_of(&self, other: &Tensor) -> Tensor {
        let batch = |t: &Tensor| Shape::try_new(&t.shape.dims()[..t.shape.rank().saturating_sub(2)]);
        let (Some(own), Some(others)) = (batch(self), batch(other)) else { return self.clone() };
        match own.broadcast(&others) {
            Some(all) if own.numel() != 1 && own != all => {
                let dims = [all.dims(), &self.shape.dims()[own.rank()..]].concat();
                Shape::try_new(&dims).map_or_else(|| self.clone(), |shape| self.expand(shape))
            }
            _ => self.clone(),
        }
    }

    /// Softmax over the last axis: `e^(x - max) / Σ e^(x - max)`.
    #[track_caller]
    #[must_use]
    pub fn softmax(&self) -> Tensor {
        self.one(Op::Softmax { log: false }, &[self], Location::caller())
    }

    /// Log-softmax over the last axis: `x - max - ln Σ e^(x - max)`.
    #[track_caller]
    #[must_use]
    pub fn log_softmax(&self) -> Tensor {
        self.one(Op::Softmax { log: true }, &[self], Location::caller())
    }

    /// Converts to another element type; any shape. `f32 → u32` truncates and saturates, NaN becomes 0.
    /// `f32 → f16` and `f32 → bf16` round to nearest, ties to even; numbers beyond the largest finite one
    /// (65,504 for `f16`), infinities included, become that number; NaN stays NaN. Casts between floats pass
    /// the gradient; integers have none.
    #[track_caller]
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Tensor {
        if dtype == self.dtype {
            return self.clone();
        }
        self.one(Op::Cast(dtype), &[self], Location::caller())
    }

    /// Sets each element to 0 with probability `p` and scales the rest by `1/(1-p)` (Srivastava et al. 2014);
    /// the identity in [`Mode::Eval`]. No mask is saved: the backward pass regenerates the same one.
    #[track_caller]
    #[must_use]
    pub fn dropout(&self, p: f64) -> Tensor {
        let at = Location::caller();
        if !(0.0..1.0).contains(&p) {
            self.trace.complain(format!("dropout with p = {p}: it must be at least 0 and below 1"), at);
            return self.clone();
        }
        if p == 0.0 || self.trace.mode() == Mode::Eval {
            return self.clone();
        }
        let op = Op::Dropout { p, key: self.trace.next_dropout(), every: 1 };
        self.one(op, &[self, &self.trace.step_scalars()], at)
    }

    /// `a` where this condition is not 0, else `b`; shapes broadcast. Elements that are not chosen, NaN and
    /// infinities included, reach neither the result nor the gradients.
    #[track_caller]
    #[must_use]
    pub fn where_cond(&self, a: &Tensor, b: &Tensor) -> Tensor {
        a.masked(self).add(&b.unmasked(self))
    }

    /// `value` where `mask` is not 0, else this tensor; shapes broadcast.
    #[track_caller]
    #[must_use]
    pub fn masked_fill(&self, mask: &Tensor, value: f32) -> Tensor {
        self.unmasked(mask).add(&self.fill_like([], value).masked(mask))
    }

    /// `xᵉ`; see [`Tensor::pow`].
    #[track_caller]
    #[must_use]
    pub fn powf(&self, exponent: f32) -> Tensor {
        self.pow(&self.fill_like([], exponent))
    }

    /// `min(max(x, 0), 6)` (Howard et al. 2017).
    #[track_caller]
    #[must_use]
    pub fn relu6(&self) -> Tensor {
        self.clamp(0.0, 6.0)
    }

    /// `1.0507 x` where `x > 0`, else `1.0507 · 1.67326 (eˣ - 1)` (Klambauer et al. 2017).
    #[track_caller]
    #[must_use]
    pub fn selu(&self) -> Tensor {
        self.elu(1.673_263_2).scale(1.050_701)
    }

    /// `x` where `x > 0`, else `a (e^(x/a) - 1)` (Barron 2017).
    #[track_caller]
    #[must_use]
    pub fn celu(&self, a: f32) -> Tensor {
        self.scale(1.0 / a).elu(1.0).scale(a)
    }

    /// `x` where `x > 0`, else `slope x` (He et al. 2015). `slope` broadcasts: one number, or `[c, 1, 1]` for a
    /// number for each channel of `[n, c, h, w]`.
    #[track_caller]
    #[must_use]
    pub fn prelu(&self, slope: &Tensor) -> Tensor {
        self.relu().sub(&self.neg().relu().mul(slope))
    }

    /// `a σ(b)` of the first half `a` and the second half `b` along `axis` (Dauphin et al. 2017).
    #[track_caller]
    #[must_use]
    pub fn glu(&self, axis: usize) -> Tensor {
        let (a, b) = self.halves(axis);
        a.mul(&b.sigmoid())
    }

    /// `silu(a) b` of the first half `a` and the second half `b` along `axis` (Shazeer 2020).
    #[track_caller]
    #[must_use]
    pub fn swiglu(&self, axis: usize) -> Tensor {
        let (a, b) = self.halves(axis);
        a.silu().mul(&b)
    }

    /// Slices in the middle of `axis`; an odd length is a mistake.
    #[track_caller]
    fn halves(&self, axis: usize) -> (Tensor, Tensor) {
        let len = self.dim(axis);
        if self.id.is_some() && (axis >= self.shape.rank() || !len.is_multiple_of(2)) {
            let none = self.mistake(
                format!("halves of {} along axis {axis}: not an even length", self.shape),
                self.shape,
            );
            return (none.clone(), none);
        }
        (self.slice(axis, 0..len / 2), self.slice(axis, len / 2..len))
    }

    /// Records a function of one element.
    pub(crate) fn apply_unary(&self, f: Unary, at: &'static Location<'static>) -> Tensor {
        if let Unary::Clamp(lo, hi) = f
            && (lo.is_nan() || hi.is_nan() || lo > hi)
        {
            self.trace.complain(format!("clamp to {lo}..{hi}: not a range"), at);
        }
        self.one(Op::Unary(f), &[self], at)
    }

    /// Records an operation with one result.
    pub(crate) fn one(&self, op: Op, inputs: &[&Tensor], at: &'static Location<'static>) -> Tensor {
        self.trace.emit(op, inputs, at).swap_remove(0)
    }
}
