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
        self.attend_unfused(k, v, None, options, Location::caller())
    }

    /// [`Tensor::attention_unfused`] with `mask` added to the scores: it broadcasts to `[b, h, s, t]`. 0 leaves a score as
    /// it is; a large negative number, such as -1e9, hides a key: [`Tensor::padding_mask`], [`Tensor::window_mask`]. Any
    /// other numbers are a bias, such as [`Tensor::alibi`]; gradients of the mask are computed where they are needed.
    #[track_caller]
    #[must_use]
    pub fn attention_masked(&self, k: &Tensor, v: &Tensor, mask: &Tensor, options: &Attention) -> Tensor {
        self.attend_unfused(k, v, Some(mask), options, Location::caller())
    }

    /// Mask `[b, 1, 1, t]` for [`Tensor::attention_masked`] from `self [b, t]`: keys where it is not 0 are seen, the
    /// others are padding.
    #[track_caller]
    #[must_use]
    pub fn padding_mask(&self) -> Tensor {
        let [b, t] = [self.dim(0), self.dim(1)];
        let hidden = self.equal(&self.fill_like([], 0.0)).scale(HIDDEN);
        hidden.reshape([b, 1, 1, t])
    }

    /// Mask `[s, t]` for [`Tensor::attention_masked`]: query `i` sees the `window` keys up to its own position, counted
    /// from the end of the keys (Beltagy et al. 2020; Mistral). Needs no elements of `self`.
    #[track_caller]
    #[must_use]
    pub fn window_mask(&self, s: usize, t: usize, window: usize) -> Tensor {
        let back = self.distances(s, t);
        let late = back.less(&self.fill_like([], 0.0));
        let early = back.greater_equal(&self.fill_like([], window as f32));
        late.maximum(&early).scale(HIDDEN)
    }

    /// Bias `[h, s, t]` for [`Tensor::attention_masked`] that falls linearly with the distance, by `2^(-8 i / h)` for head
    /// `i` from 1 (ALiBi, Press et al. 2022; for a power of two of heads). Needs no elements of `self`.
    #[track_caller]
    #[must_use]
    pub fn alibi(&self, heads: usize, s: usize, t: usize) -> Tensor {
        let rate = -8.0 * std::f32::consts::LN_2 / heads.max(1) as f32;
        let slopes = self.indices_like([heads, 1, 1], 0).offset(1.0).scale(rate).exp();
        self.distances(s, t).abs().mul(&slopes).neg()
    }

    /// Position of each query minus that of each key, `[s, t]`, where the last ones are at the same position.
    #[track_caller]
    fn distances(&self, s: usize, t: usize) -> Tensor {
        let shift = t as f32 - s as f32;
        self.indices_like([s, 1], 0).offset(shift).sub(&self.indices_like([1, t], 1))
    }

    fn attend_unfused(
        &self,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        options: &Attention,
        at: &'static Location<'static>,
    ) -> Tensor {
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
        if let Some(mask) = mask {
            let masked = self.trace.called_at(at, || scores.add(mask));
            if masked.shape != scores.shape {
                return self.mistake(
                    format!("attention mask {} for scores {}", mask.shape, scores.shape),
                    self.shape,
                );
            }
            scores = masked;
        }
        let weights = scores.softmax().dropout(options.dropout);
        let o = weights.reshape([b, hkv, group * s, t]).matmul(&v);
        o.reshape([b, sizes.heads, s, d]).permute(&[0, 2, 1, 3])
    }

    /// Mask `[s, t]` added to the scores: 0 where `j ≤ i` for query `i` and key `j`, else [`HIDDEN`], which
    /// makes the weight 0.
    fn causal_mask(&self, s: usize, t: usize) -> Tensor {
        let later = self.indices_like([1, t], 1).greater(&self.indices_like([s, 1], 0));
        later.scale(HIDDEN)
    }
}
