//! Where tokens stand in their texts, and which others attention sees.

use super::kv_cache::KvCache;
use crate::dtype::DType;
use crate::graph::{Attention, Tensor};

/// What the tokens of a row see where that is not all of the row: the earlier tokens of their text as well, from a cache, or
/// those of their own document alone.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Of the tokens in their texts, `u32 [b, s]`.
    pub(super) positions: Tensor,
    sees: Sees<'a>,
}

#[derive(Clone, Debug)]
enum Sees<'a> {
    /// A cache: the pages of each text, `u32 [b, n]`, and the number of its tokens there, `u32 [b]`; and the new tokens.
    Cache(&'a KvCache, [Tensor; 2]),
    /// Where the document of each token starts and ends, `u32 [b, s, 2]`.
    Documents(Tensor),
}

impl<'a> Context<'a> {
    /// The texts that `ids`, `u32 [b, s]`, continue: the keys and values of their first `length` tokens, `u32 [b]`, are in the
    /// `pages` of the cache, `u32 [b, n]`, as [`Tensor::cached_attention`] takes them. For forward passes.
    #[track_caller]
    pub fn after(cache: &'a KvCache, pages: &Tensor, length: &Tensor, ids: &Tensor) -> Self {
        let first = length.cast(DType::F32).reshape([ids.dim(0), 1]);
        let positions = first.add(&first.indices_like([ids.dim(0), ids.dim(1)], 1)).cast(DType::U32);
        Self { positions, sees: Sees::Cache(cache, [pages, length].map(Tensor::clone)) }
    }

    /// Rows with several documents, as [`Tensor::attention_within`] takes them: `documents` `u32 [b, s, 2]`. Positions count from
    /// the start of a document.
    #[track_caller]
    pub fn within(documents: &Tensor) -> Self {
        let [b, s] = [documents.dim(0), documents.dim(1)];
        let starts = documents.cast(DType::F32).slice(2, 0..1).reshape([b, s]);
        let positions = starts.indices_like([b, s], 1).sub(&starts).cast(DType::U32);
        Self { positions, sees: Sees::Documents(documents.clone()) }
    }

    /// Returns where the document of each token starts and ends, `u32 [b, s, 2]`, if tokens see their own document alone.
    pub(super) fn documents(&self) -> Option<&Tensor> {
        match &self.sees {
            Sees::Documents(documents) => Some(documents),
            Sees::Cache(..) => None,
        }
    }

    /// Returns what a layer sees.
    pub(super) fn layer(&self, i: usize) -> Seen<'_> {
        Seen { context: self, layer: i }
    }
}

/// What a layer sees.
pub(super) struct Seen<'a> {
    pub context: &'a Context<'a>,
    layer: usize,
}

impl Seen<'_> {
    /// Attention of `q [b, s, h, d]`, `k` and `v`.
    #[track_caller]
    pub(super) fn attend(&self, [q, k, v]: [&Tensor; 3], options: &Attention) -> Tensor {
        match &self.context.sees {
            Sees::Documents(documents) => q.attention_within(k, v, documents, options),
            Sees::Cache(cache, [pages, length]) => {
                let options = Attention { dropout: 0.0, ..*options };
                let caches = cache.layers[self.layer].each_ref().map(|param| length.trace().param(param));
                q.cached_attention(k, v, caches.each_ref(), pages, length, &options)
            }
        }
    }

    /// Attention of queries, keys and values of `heads` heads each, in one tensor.
    #[track_caller]
    pub(super) fn attend_packed(&self, qkv: &Tensor, heads: usize, options: &Attention) -> Tensor {
        match &self.context.sees {
            Sees::Documents(documents) => qkv.self_attention_within(heads, heads, documents, options),
            Sees::Cache(..) => {
                let [q, k, v] = [0, 1, 2].map(|i| qkv.slice(2, i * heads..(i + 1) * heads));
                self.attend([&q, &k, &v], options)
            }
        }
    }
}
