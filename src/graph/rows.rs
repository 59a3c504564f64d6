//! Operations on rows, the last axis: embedding, layer norm, RMS norm, rotary position embedding.

use std::panic::Location;

use super::{Indices, Op, Rope, RowNorm, Tensor};
use crate::shape::Shape;

impl Tensor {
    /// Looks up rows of this table `[v, d]`: `ids` `u32 [..]` → `[.., d]`. Declare the ids with
    /// [`Trace::ids`](super::Trace::ids): feeding an id of `v` or more is then an error. An unchecked id of
    /// `v` or more reads the last row.
    #[track_caller]
    #[must_use]
    pub fn embedding(&self, ids: &Tensor) -> Tensor {
        let at = Location::caller();
        let rows = self.dim(0);
        match ids.indices() {
            Some(Indices::Ids(below)) if below as usize > rows => {
                self.trace
                    .complain(format!("embedding: ids up to {} of a table {}", below - 1, self.shape), at);
            }
            Some(Indices::Labels(_)) => {
                let message =
                    "embedding of labels, which may be u32::MAX: declare the input with `Trace::ids`";
                self.trace.complain(message.to_owned(), at);
            }
            _ => {}
        }
        self.one(Op::Embedding, &[self, ids], at)
    }

    /// Layer norm over the last axis (Ba et al. 2016): `γ (x - mean) / √(var + ε) + β` with the biased
    /// variance. `self [.., d]`, `gamma [d]`, `beta [d]`.
    #[track_caller]
    #[must_use]
    pub fn layer_norm(&self, gamma: &Tensor, beta: &Tensor, eps: f32) -> Tensor {
        let op = Op::RowNorm { kind: RowNorm::Layer, eps };
        self.one(op, &[self, gamma, beta], Location::caller())
    }

    /// RMS norm over the last axis (Zhang & Sennrich 2019): `γ x / √(mean of x² + ε)`. `self [.., d]`,
    /// `gamma [d]`.
    #[track_caller]
    #[must_use]
    pub fn rms_norm(&self, gamma: &Tensor, eps: f32) -> Tensor {
        let op = Op::RowNorm { kind: RowNorm::Rms, eps };
        self.one(op, &[self, gamma], Location::caller())
    }

    /// Applies `f` to at most `rows` rows at a time, where all axes but the last of `self [.., d]` are rows, and concatenates
    /// the results. `f` must treat rows alike and keep their number, as the perceptron of a transformer does: then results are
    /// the same in chunks of any size, but for the order in which gradients of weights add up. What `f` has of a chunk is
    /// freed before the next, also in the backward pass if it is recomputed: memory for long sequences
    /// is that of a chunk (sequence tiling).
    #[track_caller]
    #[must_use]
    pub fn in_chunks(&self, rows: usize, f: impl Fn(&Tensor) -> Tensor) -> Tensor {
        let dims = self.shape.dims();
        let Some((&columns, leading)) = dims.split_last() else {
            return self.mistake("in_chunks of a scalar: there are no rows", self.shape);
        };
        let all: usize = leading.iter().product();
        if rows == 0 {
            return self.mistake(format!("in_chunks of {} of 0 rows at a time", self.shape), self.shape);
        }
        if all <= rows || self.id.is_none() {
            return f(self);
        }
        let flat = self.reshape([all, columns]);
        let part = |start: usize| f(&flat.slice(0, start..(start + rows).min(all)));
        let parts: Vec<Tensor> = (0..all).step_by(rows).map(part).collect();
        let whole = parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), 0);
        match whole.shape.dims() {
            [count, columns] if *count == all => {
                let shape = Shape::try_new(&[leading, &[*columns]].concat()).unwrap_or(whole.shape);
                whole.reshape(shape)
            }
            _ => self.mistake(
                format!("in_chunks: {} rows of {} became {}", all, self.shape, whole.shape),
                self.shape,
            ),
        }
    }

    /// Rotary position embedding (Su et al. 2021) of the first `heads` heads of `self [b, s, h, d]`; the
    /// other heads are unchanged. At position `p` along `s`, elements `i` and `i + d/2` are rotated by
    /// `p base^(-2i/d)` radians (Hugging Face's `rotate_half`): `xᵢ cos - xᵢ₊ sin`, `xᵢ₊ cos + xᵢ sin`. `rope` is a base, or
    /// a [`Rope`] with scaled frequencies.
    /// Angles are exact to 2⁻³¹ of a turn at every position, except that frequencies within the ramp of
    /// [`RopeScaling::Llama3`](super::RopeScaling) are rounded to 2e-7 of themselves; sine and cosine to 1e-6 on every adapter.
    #[track_caller]
    #[must_use]
    pub fn rotary(&self, heads: usize, rope: impl Into<Rope>) -> Tensor {
        self.one(Op::Rotary { heads, rope: rope.into(), back: false }, &[self], Location::caller())
    }

    /// [`Tensor::rotary`] of rows whose positions are `positions`, `u32 [b, s]`.
    #[track_caller]
    #[must_use]
    pub fn rotary_at(&self, positions: &Tensor, heads: usize, rope: impl Into<Rope>) -> Tensor {
        let op = Op::Rotary { heads, rope: rope.into(), back: false };
        self.one(op, &[self, positions], Location::caller())
    }
}
