//! Common parts of the transformers.

use super::context::Seen;
use crate::error::{Error, Result};
use crate::graph::{Attention, Tensor};
use crate::nn::Module;

/// Attention heads of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    /// Number of heads of queries, keys and values each.
    pub heads: usize,
    pub attention: Attention,
}

impl Heads {
    /// # Errors
    /// [`Error::Setting`] if the number of heads does not divide the width.
    pub(super) fn check(&self, width: usize) -> Result<()> {
        let Self { heads, .. } = *self;
        if heads == 0 || !width.is_multiple_of(heads) {
            let message = format!("{heads} heads for a width of {width}: the first must divide the second");
            return Err(Error::setting("heads", message));
        }
        Ok(())
    }

    /// `x [b, s, d] → [b, s, d]`: the first layer computes queries, keys and values, the second combines the
    /// heads' results.
    #[track_caller]
    pub(super) fn attend(&self, x: &Tensor, layers: [&impl Module; 2], seen: Option<&Seen>) -> Tensor {
        let (b, s) = (x.dim(0), x.dim(1));
        let packed = x.apply(layers[0]);
        let (heads, width) = (3 * self.heads, packed.shape().last());
        let packed = packed.reshape([b, s, heads, width / heads]);
        let result = match seen {
            Some(seen) => seen.attend_packed(&packed, self.heads, &self.attention),
            None => packed.self_attention(self.heads, self.heads, &self.attention),
        };
        result.reshape([b, s, width / 3]).apply(layers[1])
    }
}

/// Maximum bytes of logits, or of a hidden layer of a perceptron, that are alive at once, unless 128 rows have more. Each
/// chunk computes a gradient of the whole weight, so fewer chunks move less memory. This size is below what the backward pass
/// of a layer needs anyway, and every adapter can bind it.
const CHUNK_BYTES: usize = 74 << 20;

/// Maximum number of chunks of a batch, in each of which a perceptron is computed at once: the plan of a long sequence has no
/// more operations than that of a shorter one.
const MOST_CHUNKS: usize = 16;

/// Maximum number of parts of a batch, in each of which a block is computed at once. More parts save less memory than their
/// operations cost time to plan.
const MOST_PARTS: usize = 4;

/// Rows of a chunk are a multiple of this, that of the largest tile of a product.
const TILE: usize = 128;

/// Returns how many rows of so many columns are within a chunk.
fn rows_within_chunk(columns: usize) -> usize {
    let most = CHUNK_BYTES / (4 * columns).max(1);
    if most < TILE { most.max(1) } else { most / TILE * TILE }
}

/// Returns how many of `rows` each of at most `most` chunks has.
fn rows_of_each(rows: usize, columns: usize, most: usize) -> usize {
    rows.div_ceil(most).next_multiple_of(TILE).max(rows_within_chunk(columns))
}

/// Returns how many of `rows` a perceptron with a hidden layer of `columns` processes at a time.
pub(super) fn perceptron_rows(rows: usize, columns: usize) -> usize {
    rows_of_each(rows, columns, MOST_CHUNKS)
}

/// Returns how many of `rows` a block processes at a time, with queries of `columns`.
pub(super) fn block_rows(rows: usize, columns: usize) -> usize {
    rows_of_each(rows, columns, MOST_PARTS)
}

/// The mean cross-entropy of `hidden [.., d]` with `labels [..]`, with logits `hidden · weightᵀ`,
/// `weight [v, d]`, and `cap` as in [`Tensor::capped`].
#[track_caller]
pub(super) fn token_loss(hidden: &Tensor, weight: &Tensor, labels: &Tensor, cap: Option<f32>) -> Tensor {
    let rows = labels.shape().numel() as usize;
    let length = rows_within_chunk(weight.dim(0));
    let chunks = rows.div_ceil(length).max(1);
    hidden.reshape([rows, hidden.shape().last()]).linear_cross_entropy_of(
        weight,
        &labels.reshape([rows]),
        chunks,
        &|logits| logits.capped(cap),
    )
}

/// Initial standard deviation of weights (Radford et al. 2019, Devlin et al. 2018).
pub(super) const STD: f32 = 0.02;

/// Returns the initial standard deviation for a layer that adds to the residual stream, out of `adding` such
/// layers. Their sum then starts with the variance of a single layer with [`STD`].
pub(super) fn residual_std(adding: usize) -> f32 {
    STD / (adding.max(1) as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sequences_have_larger_chunks_not_more() {
        assert_eq!([100, 8192].map(|rows| perceptron_rows(rows, 14_336)), [1280; 2]);
        assert_eq!(perceptron_rows(44_032, 14_336), 2816);
        for rows in [20_481usize, 100_000, 1 << 20] {
            assert!(rows.div_ceil(perceptron_rows(rows, 14_336)) <= MOST_CHUNKS, "{rows}");
        }
    }
}
