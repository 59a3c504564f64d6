//! Keys and values of the tokens of a text, which later tokens see.

use super::sequence::Sequence;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Param, Params};

/// A KV cache: for each layer of a network the keys and the values of the tokens of a text, so that a later token computes
/// its own alone. Its tensors are buffers of the network's parameters and planned with them; files do not have them.
#[derive(Clone, Debug)]
pub struct KvCache {
    /// Keys and values of each layer.
    pub(super) layers: Vec<[Param; 2]>,
    tokens: usize,
    dtype: DType,
}

/// What a network keeps of each token of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizes {
    /// Number of layers with attention.
    pub layers: usize,
    /// Heads of keys and of values in a layer.
    pub heads: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// The most tokens of a text, if the network has a table of positions.
    pub most: Option<usize>,
}

impl KvCache {
    /// Registers `kv_cache.0.k`, `kv_cache.0.v` and so on, `[batch, tokens, heads, head_size]` in `f32`, `f16`, `bf16` or
    /// `uint8`, which takes heads of multiples of 64 elements, at the path of `params`, which must be the root of the network's
    /// registry. Every plan of a session has them, so it is made before any of them is traced.
    ///
    /// # Errors
    /// [`Error::Setting`] for a network without a cache, for a cache of nothing, and for more tokens than the network has
    /// positions.
    pub fn new(
        params: &Params,
        network: &(impl Sequence + ?Sized),
        [batch, tokens]: [usize; 2],
        dtype: DType,
    ) -> Result<Self> {
        let wrong = |message: String| Err(Error::setting("cache", message));
        let Some(CacheSizes { layers, heads, head_size, most }) = network.cache_sizes() else {
            return wrong("this network does not predict the next token: it has no KV cache".to_owned());
        };
        if batch == 0 || tokens == 0 {
            return wrong(format!("a KV cache of {batch} texts of {tokens} tokens: both must be at least 1"));
        }
        if let Some(most) = most.filter(|most| tokens > *most) {
            return wrong(format!("a KV cache of {tokens} tokens: the network has {most} positions"));
        }
        let of_layer = |i: usize| {
            let params = params.scope(format!("kv_cache.{i}"));
            ["k", "v"].map(|name| params.add_cache(name, [batch, tokens, heads, head_size], dtype))
        };
        Ok(Self { layers: (0..layers).map(of_layer).collect(), tokens, dtype })
    }

    /// Returns the number of tokens that it holds of each text.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns its bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().flatten().map(|param| self.dtype.bytes(param.shape().numel())).sum()
    }
}
