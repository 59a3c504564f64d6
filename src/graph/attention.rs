//! Attention (Vaswani et al. 2017): fused, with memory linear in the sequence length, and unfused, from
//! matrix products.

use std::panic::Location;

use super::op::Attend;
use super::{Mode, Op, Tensor};

/// Options of attention. By default every query sees all keys, scores are scaled by `1/√d`, and there is no
/// dropout.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// Query `i` sees keys `0..=i` only, also where the numbers of keys and queries differ, as with PyTorch's
    /// `is_causal`.
    pub causal: bool,
    /// Factor of the scores `q·k`; `None`: `1/√d`.
    pub scale: Option<f32>,
    /// Probability that a weight becomes 0 during training; the others are scaled by `1/(1-p)`.
    pub dropout: f64,
}

/// Added to the score of a key that a query may not see.
const HIDDEN: f32 = -1e9;

impl Attention {
    /// Causal attention: each query sees its own position and those before it.
    pub fn causal() -> Self {
        Self { causal: true, ..Self::default() }
    }
}

impl Tensor {
    /// `self` = q `[b, s, h, d]`, k and v `[b, t, hkv, d]` → `[b, s, h, d]`: `softmax(scale q kᵀ) v` for each
    /// head. `h` is a multiple of `hkv`; query head `i` attends to key head `i hkv / h` (grouped-query
    /// attention, Ainslie et al. 2023).
    ///
    /// Nothing of size `s t` is ever in memory: the forward pass saves its result and one number for each
    /// row, and the backward pass recomputes the scores tile by tile (Dao et al. 2022). Heads have at most
    /// 256 elements; a head size that is not a multiple of four costs a copy of the operands.
    #[track_caller]
    #[must_use]
    pub fn attention(&self, k: &Tensor, v: &Tensor, options: &Attention) -> Tensor {
        self.attend(&[k, v], None, options, Location::caller())
    }

    /// Self-attention: `self` `[b, s, h + 2 hkv, d]` holds the query heads, then the key heads, then the
    /// value heads, as one linear layer computes them → `[b, s, h, d]`. Same as [`Tensor::attention`] but
    /// without slices; the gradient is one tensor too.
    #[track_caller]
    #[must_use]
    pub fn self_attention(&self, heads: usize, kv_heads: usize, options: &Attention) -> Tensor {
        self.attend(&[], Some([heads, kv_heads]), options, Location::caller())
    }

    fn attend(
        &self,
        others: &[&Tensor],
        packed: Option<[usize; 2]>,
        options: &Attention,
        at: &'static Location<'static>,
    ) -> Tensor {
        let Some(scale) = self.score_scale(options, at) else { return Tensor { id: None, ..self.clone() } };
        let size = self.shape.last();
        let lack = size.next_multiple_of(4) - size;
        // Zeros appended to a head do not change the scores.
        let fours: Vec<Tensor> = std::iter::once(&self)
            .chain(others)
            .map(|x| if lack > 0 && x.shape.rank() == 4 { x.pad(3, 0, lack) } else { (*x).clone() })
            .collect();
        let mut inputs: Vec<&Tensor> = fours.iter().collect();
        let dropout = if self.trace.mode() == Mode::Eval { 0.0 } else { options.dropout };
        let mut op = Attend { packed, causal: options.causal, scale, dropout, key: 0 };
        let scalars;
        if dropout > 0.0 {
            op.key = self.trace.next_dropout();
            scalars = self.trace.step_scalars();
            inputs.push(&scalars);
        }
        let o = self.trace.emit(Op::Attention(op), &inputs, at).swap_remove(0);
        if lack > 0 && o.id.is_some() { o.slice(3, 0..size) } else { o }
    }

    /// Checks the options and returns the factor of the scores.
    fn score_scale(&self, options: &Attention, at: &'static Location<'static>) -> Option<f32> {
        if !(0.0..1.0).contains(&options.dropout) {
            let p = options.dropout;
            let message = format!("attention with dropout {p}: it must be at least 0 and below 1");
            self.trace.complain(message, at);
            return None;
        }
        let scale = options.scale.unwrap_or_else(|| 1.0 / (self.shape.last().max(1) as f32).sqrt());
        if !scale.is_finite() {
            self.trace.complain(format!("attention with scale {scale}: it must be finite"), at);
            return None;
        }
        Some(scale)
    }

    /// [`Tensor::attention`] built from matrix products, mask, softmax and dropout. The result is the same
    /// except for rounding and for a different dropout mask. The `[b, h, s, t]` scores are in memory and
    /// saved for the backward pass. Use it for comparison, and for heads of more than 256 elements.
    #[track_caller]
    #[must_use]
    pub fn attention_unfused(&self, k: &Tensor, v: &Tensor, options: &Attention) -> Tensor {
        let at = Location::caller();
        let broken = || Tensor { id: None, ..self.clone() };
        let Some(scale) = self.score_scale(options, at) else { return broken() };
        if [self, k, v].iter().any(|x| x.id.is_none()) {
            return broken();
        }
        let attend = Attend { packed: None, causal: false, scale, dropout: 0.0, key: 0 };
        let sizes = match attend.sizes(&[self, k, v].map(|x| x.shape)) {
            Ok(sizes) => sizes,
            Err(message) => {
                self.trace.complain(message, at);
                return broken();
            }
        };
        let (b, s, t, d) = (sizes.batch, sizes.rows, sizes.cols, self.shape.last());
        let (hkv, group) = (sizes.kv_heads, sizes.heads / sizes.kv_heads);
        // The query heads of a group become rows of one product, so keys and values are not repeated.
        let q = self.scale(scale).permute(&[0, 2, 1, 3]).reshape([b, hkv, group * s, d]);
        let k = k.permute(&[0, 2, 1, 3]);
        let v = v.permute(&[0, 2, 1, 3]);
        let mut scores = q.matmul_transposed(&k, false, true).reshape([b, sizes.heads, s, t]);
        if options.causal {
            scores = scores.add(&self.causal_mask(s, t));
        }
        let weights = scores.softmax().dropout(options.dropout);
        let o = weights.reshape([b, hkv, group * s, t]).matmul(&v);
        o.reshape([b, sizes.heads, s, d]).permute(&[0, 2, 1, 3])
    }

    /// Mask `[s, t]` added to the scores: 0 where `j ≤ i` for query `i` and key `j`, else [`HIDDEN`], which
    /// makes the weight 0.
    fn causal_mask(&self, s: usize, t: usize) -> Tensor {
        if t == 1 {
            return self.fill_like([s, t], 0.0);
        }
        // One row of s + t elements is repeated s times and cut into rows of s + t - 1: each starts one
        // element further to the left.
        let row = self.fill_like([t - 1], HIDDEN).pad(0, 1, s);
        let length = s + t;
        let shifted = row.expand([s, length]).reshape([s * length]).slice(0, 0..s * (length - 1));
        shifted.reshape([s, length - 1]).slice(1, 0..t)
    }
}
