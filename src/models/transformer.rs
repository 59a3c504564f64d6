//! Common parts of the transformers.

use crate::error::{Error, Result};
use crate::graph::{Attention, Tensor};
use crate::nn::Module;

/// Attention heads of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    /// Number of query heads.
    pub queries: usize,
    /// Number of key and value heads; a divisor of the number of query heads.
    pub pairs: usize,
    /// Base of the rotary position embedding, if there is one.
    pub rotary: Option<f32>,
    pub attention: Attention,
}

impl Heads {
    /// # Errors
    /// [`Error::Setting`] if `queries` does not divide the width or `pairs` does not divide `queries`, or if
    /// rotary position embedding is used with heads of odd size.
    pub(super) fn check(&self, width: usize) -> Result<()> {
        let Self { queries, pairs, .. } = *self;
        if queries == 0 || pairs == 0 || !width.is_multiple_of(queries) || !queries.is_multiple_of(pairs) {
            return Err(Error::setting(
                "heads",
                format!(
                    "{queries} heads and {pairs} heads of keys and values for a width of {width}: the first must divide the \
                 width, the second the first"
                ),
            ));
        }
        if self.rotary.is_some() && !(width / queries).is_multiple_of(2) {
            return Err(Error::setting(
                "heads",
                format!(
                    "a rotary position embedding turns pairs, and {queries} heads of a width of {width} have {} elements each",
                    width / queries
                ),
            ));
        }
        Ok(())
    }

    /// Returns the output width of the linear layer that computes queries, keys and values of all heads, for
    /// a model of this width.
    pub(super) fn packed(&self, width: usize) -> usize {
        (self.queries + 2 * self.pairs) * (width / self.queries)
    }

    /// `x [b, s, d] → [b, s, d]`: the first layer computes queries, keys and values, the second combines the
    /// heads' results.
    #[track_caller]
    pub(super) fn attend(&self, x: &Tensor, layers: [&impl Module; 2]) -> Tensor {
        let (b, s) = (x.dim(0), x.dim(1));
        let packed = x.apply(layers[0]);
        let (heads, width) = (self.queries + 2 * self.pairs, packed.shape().last());
        let packed = packed.reshape([b, s, heads, width / heads]);
        let packed = match self.rotary {
            Some(base) => packed.rotary(self.queries + self.pairs, base),
            None => packed,
        };
        let result = packed.self_attention(self.queries, self.pairs, &self.attention);
        result.reshape([b, s, self.queries * (width / heads)]).apply(layers[1])
    }
}

/// Maximum bytes of logits alive at once, unless 128 rows have more. Each chunk of a loss computes a gradient of the
/// whole output weight, so fewer chunks move less memory. This size is below what the backward pass of a layer needs
/// anyway, and every adapter can bind it.
const CHUNK_BYTES: usize = 74 << 20;

/// Rows of a chunk are a multiple of this, that of the largest tile of a product.
const TILE: usize = 128;

/// The mean cross-entropy of `hidden [.., d]` with `labels [..]`, with logits `hidden · weightᵀ`,
/// `weight [v, d]`.
#[track_caller]
pub(super) fn token_loss(hidden: &Tensor, weight: &Tensor, labels: &Tensor) -> Tensor {
    let rows = labels.shape().numel() as usize;
    let most = CHUNK_BYTES / (4 * weight.dim(0)).max(1);
    let length = if most < TILE { most.max(1) } else { most / TILE * TILE };
    let chunks = rows.div_ceil(length).max(1);
    hidden.reshape([rows, hidden.shape().last()]).linear_cross_entropy(
        weight,
        &labels.reshape([rows]),
        chunks,
    )
}

/// Initial standard deviation of weights (Radford et al. 2019, Devlin et al. 2018).
pub(super) const STD: f32 = 0.02;

/// Returns the initial standard deviation for a layer that adds to the residual stream, out of `adding` such
/// layers. Their sum then starts with the variance of a single layer with [`STD`].
pub(super) fn residual_std(adding: usize) -> f32 {
    STD / (adding.max(1) as f32).sqrt()
}
