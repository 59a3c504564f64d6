//! Attention (Vaswani et al. 2017): fused, with memory linear in the sequence length, and unfused, from
//! matrix products.

use std::panic::Location;

use super::op::{Attend, Band};
use super::{Class, Mode, Op, Tensor, ValueId};

/// Options of attention. By default every query sees all keys, scores are scaled by `1/√d`, and there is no
/// dropout. Queries and keys are counted from the first ones, also where their numbers differ, but for [`Attention::offset`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// Query `i` sees keys `0..=i` only, also where the numbers of keys and queries differ, as with PyTorch's
    /// `is_causal`.
    pub causal: bool,
    /// Factor of the scores `q·k`; `None`: `1/√d`.
    pub scale: Option<f32>,
    /// Probability that a weight becomes 0 during training; the others are scaled by `1/(1-p)`.
    pub dropout: f64,
    /// Sliding window (Beltagy et al. 2020): query `i` sees the keys `j` with `|i - j| < window`; with `causal` the last
    /// `window` ones up to its own position, as in Mistral (Jiang et al. 2023). What no query sees is not computed.
    pub window: Option<usize>,
    /// ALiBi (Press et al. 2022): `slope |i - j|` is subtracted from the score of query `i` with key `j`. The slope of head
    /// `i` of `h`, from 1, is `2^(-8 i / h)` for a power of two; for other `h` the first heads have the slopes of the next
    /// lower power of two, the others every second slope of the next higher one.
    pub alibi: bool,
    /// Soft-capping, as in Gemma 2: a score becomes `cap tanh(score / cap)`, before masks and ALiBi.
    pub softcap: Option<f32>,
    /// Position of the first query among the keys, where queries are a part of a sequence: query `i` counts as position
    /// `offset + i` in `causal` and `window`. The first key is one that the first query sees: in a window, those before it are
    /// sliced off.
    pub offset: usize,
}

/// Added to the score of a key that a query may not see.
const HIDDEN: f32 = -1e9;

impl Attention {
    /// Causal attention: each query sees its own position and those before it.
    pub fn causal() -> Self {
        Self { causal: true, ..Self::default() }
    }

    /// The operation with these options: of separate operands, without dropout.
    fn attend(&self, scale: f32) -> Attend {
        let band = Band::new(self.causal, self.window).moved(self.offset);
        let (alibi, cap) = (self.alibi, self.softcap.unwrap_or(0.0));
        Attend {
            packed: None,
            band,
            documents: false,
            offset: self.offset.min(Band::FAR as usize) as u32,
            alibi,
            scale,
            cap,
            dropout: 0.0,
            key: 0,
            heads_of: None,
        }
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
        self.attend(&[k, v], None, None, options, Location::caller())
    }

    /// [`Tensor::attention`] of rows that hold several documents, one after the other: a query sees keys of its own document
    /// alone, with its window and `causal` within it. `documents`, `u32 [b, t, 2]`, says where the document of each key's position
    /// starts and where it ends (exclusive), counted from the first key of the row;
    /// [`Documents`](crate::data::Documents) returns it with each batch. The queries are those of all keys, or from
    /// [`Attention::offset`] on.
    ///
    /// Every position of a document has the same two numbers; a position always sees itself, whatever they are. Tiles of scores
    /// between two documents are not computed.
    #[track_caller]
    #[must_use]
    pub fn attention_within(
        &self,
        k: &Tensor,
        v: &Tensor,
        documents: &Tensor,
        options: &Attention,
    ) -> Tensor {
        self.attend(&[k, v], None, Some(documents), options, Location::caller())
    }

    /// Self-attention: `self` `[b, s, h + 2 hkv, d]` holds the query heads, then the key heads, then the
    /// value heads, as one linear layer computes them → `[b, s, h, d]`. Same as [`Tensor::attention`] but
    /// without slices; the gradient is one tensor too.
    #[track_caller]
    #[must_use]
    pub fn self_attention(&self, heads: usize, kv_heads: usize, options: &Attention) -> Tensor {
        self.attend(&[], Some([heads, kv_heads]), None, options, Location::caller())
    }

    /// [`Tensor::self_attention`] of rows that hold several documents, as with [`Tensor::attention_within`].
    #[track_caller]
    #[must_use]
    pub fn self_attention_within(
        &self,
        heads: usize,
        kv_heads: usize,
        documents: &Tensor,
        options: &Attention,
    ) -> Tensor {
        self.attend(&[], Some([heads, kv_heads]), Some(documents), options, Location::caller())
    }

    /// Causal attention of new tokens and those before them, in forward passes: `self` = q `[b, s, h, d]`, k and v
    /// `[b, s, hkv, d]` → `[b, s, h, d]`. The caches, parameters of [`Params::add_cache`](super::Params::add_cache), are pages
    /// `[p, t, hkv, d]` of `t` tokens each. `pages`, `u32 [b, n]`, has those of each text: the keys and values of its token
    /// `j` are row `j % t` of page `pages[j / t]` (Kwon et al. 2023). `length`, `u32 [b]`, is the number of tokens before the
    /// new ones, whose own are added after them, as far as the text has pages: one numbered `p` or more is none. Texts may
    /// share pages that no new token falls into. Queries see the tokens before them as with [`Tensor::attention`] of all tokens
    /// at once, with its window, scale and softcap.
    ///
    /// A head has a multiple of four elements, at most 256. There is no ALiBi and no dropout.
    #[track_caller]
    #[must_use]
    pub fn cached_attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        caches: [&Tensor; 2],
        pages: &Tensor,
        length: &Tensor,
        options: &Attention,
    ) -> Tensor {
        let at = Location::caller();
        let Some(scale) = self.score_scale(options, at) else { return Tensor { id: None, ..self.clone() } };
        let [of_keys, of_values] = caches.map(|cache| cache.id);
        let lasts = |id: ValueId| self.trace.class_of(id) == Class::Parameter;
        let message = match options {
            _ if self.trace.mode() == Mode::Train => {
                "attention over a cache in a training step: it has no gradient"
            }
            _ if of_keys.is_some() && of_keys == of_values => {
                "attention over one cache for keys and values: each has its own"
            }
            _ if ![of_keys, of_values].into_iter().flatten().all(lasts) => {
                "attention over a cache that is not a parameter: `Params::add_cache` registers one"
            }
            Attention { causal: false, .. } => "attention over a cache that is not causal",
            Attention { alibi: true, .. } => "attention over a cache with ALiBi",
            Attention { offset: 1.., .. } => {
                "attention over a cache with an offset: it is the cache's length"
            }
            _ => {
                let op = Op::CachedAttention(options.attend(scale));
                return self.one(op, &[self, k, v, caches[0], caches[1], pages, length], at);
            }
        };
        self.mistake(message, self.shape)
    }

    fn attend(
        &self,
        others: &[&Tensor],
        packed: Option<[usize; 2]>,
        documents: Option<&Tensor>,
        options: &Attention,
        at: &'static Location<'static>,
    ) -> Tensor {
        let Some(scale) = self.score_scale(options, at) else { return Tensor { id: None, ..self.clone() } };
        if options.offset > 0 && packed.is_some() {
            let message = "attention with an offset: it takes separate queries, keys and values";
            self.trace.complain(message.to_owned(), at);
            return Tensor { id: None, ..self.clone() };
        }
        let size = self.shape.last();
        let lack = size.next_multiple_of(4) - size;
        // Zeros appended to a head do not change the scores.
        let padded: Vec<Tensor> = std::iter::once(&self)
            .chain(others)
            .map(|x| if lack > 0 && x.shape.rank() == 4 { x.pad(3, 0, lack) } else { (*x).clone() })
            .collect();
        let mut inputs: Vec<&Tensor> = padded.iter().chain(documents).collect();
        let dropout = if self.trace.mode() == Mode::Eval { 0.0 } else { options.dropout };
        let mut op = Attend { packed, documents: documents.is_some(), dropout, ..options.attend(scale) };
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
        let scale = options.scale.unwrap_or_else(|| 1.0 / (self.shape.last().max(1) as f32).sqrt());
        let message = match *options {
            Attention { dropout, .. } if !(0.0..1.0).contains(&dropout) => {
                format!("attention with dropout {dropout}: it must be at least 0 and below 1")
            }
            Attention { window: Some(0), .. } => {
                "attention with a window of 0: a window of 1 is the query's own position".to_owned()
            }
            Attention { softcap: Some(cap), .. } if !(cap > 0.0 && cap.is_finite()) => {
                format!("attention with a softcap of {cap}: it must be above 0 and finite")
            }
            Attention { alibi: true, offset: 1.., .. } => {
                format!("attention with ALiBi and an offset of {}: distances count from 0", options.offset)
            }
            Attention { window: Some(window), offset, .. } if offset >= window => format!(
                "attention with a window of {window} and an offset of {offset}: no query sees the first key; slice off \
                 {} keys, with an offset of {}",
                offset - window + 1,
                window - 1
            ),
            _ if options.offset > Band::FAR as usize => {
                format!("attention with an offset of {}: it is at most {}", options.offset, Band::FAR)
            }
            _ if !scale.is_finite() => format!("attention with scale {scale}: it must be finite"),
            _ => return Some(scale),
        };
        self.trace.complain(message, at);
        None
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
    /// it is; a large negative number, such as -1e9, hides a key: [`Tensor::padding_mask`]. Any other numbers are a bias;
    /// gradients of the mask are computed where they are needed.
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
        let attend = options.attend(scale);
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
        let scores = q.matmul_transposed(&k, false, true).reshape([b, sizes.heads, s, t]);
        let mut scores = scores.capped(options.softcap);
        if let Some(hidden) = self.band_mask(attend.band, s, t) {
            scores = scores.add(&hidden);
        }
        if options.alibi {
            scores = scores.sub(&self.alibi(sizes.heads, s, t));
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

    /// Soft-capping: `cap tanh(x / cap)`, or the tensor itself without a cap.
    #[track_caller]
    pub(crate) fn capped(&self, cap: Option<f32>) -> Tensor {
        match cap {
            Some(cap) => self.scale(1.0 / cap).tanh().scale(cap),
            None => self.clone(),
        }
    }

    /// Mask `[s, t]` added to the scores: 0 where query `i` sees key `j`, else [`HIDDEN`], which makes the weight 0.
    #[track_caller]
    fn band_mask(&self, band: Band, s: usize, t: usize) -> Option<Tensor> {
        let distance = self.distances(s, t);
        let limit = |far: u32| (far < Band::FAR).then(|| self.fill_like([], far as f32));
        let late = limit(band.after).map(|after| distance.less(&after.neg()));
        let early = limit(band.before).map(|before| distance.greater(&before));
        let hidden = match (late, early) {
            (Some(late), Some(early)) => late.maximum(&early),
            (one, other) => one.or(other)?,
        };
        Some(hidden.scale(HIDDEN))
    }

    /// ALiBi's `slope |i - j|`, `[h, s, t]`, with the slopes of [`Attend::slope`].
    #[track_caller]
    fn alibi(&self, heads: usize, s: usize, t: usize) -> Tensor {
        let lower = Attend::lower_power(heads);
        let rate = -4.0 * std::f32::consts::LN_2 / lower as f32;
        let slopes = |count: usize, first: f32| {
            self.indices_like([count, 1, 1], 0).scale(2.0).offset(first).scale(rate).exp()
        };
        let mut all = slopes(lower, 2.0);
        if lower < heads {
            all = all.concat(&[&slopes(heads - lower, 1.0)], 0);
        }
        self.distances(s, t).abs().mul(&all)
    }

    /// Position of each query minus that of each key, `[s, t]`.
    #[track_caller]
    fn distances(&self, s: usize, t: usize) -> Tensor {
        self.indices_like([s, 1], 0).sub(&self.indices_like([1, t], 1))
    }
}
