//! Keys and values of the tokens of a text, which later tokens see.

use super::sequence::Sequence;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Param, Params};

/// A KV cache: for each layer of a network the keys and the values of the tokens of texts, so that a later token computes
/// its own alone. They are in pages of [`KvCache::PAGE`] tokens, which texts take as they grow (Kwon et al. 2023). Its tensors
/// are buffers of the network's parameters and planned with them; files do not have them.
#[derive(Clone, Debug)]
pub struct KvCache {
    /// Keys and values of each layer.
    pub(super) layers: Vec<[Param; 2]>,
    tokens: usize,
    pages: usize,
    dtype: DType,
}

/// Sizes of a [`KvCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The most tokens of a text.
    pub tokens: usize,
    /// Pages for all texts; `None` for those that one text of `tokens` takes.
    pub pages: Option<usize>,
    /// Storage format: `f32`, `f16`, `bf16` or `uint8`, 8.5 bits of an element, which takes heads of multiples of 64
    /// elements.
    pub dtype: DType,
}

impl Default for CacheOptions {
    /// One text of 1,024 tokens in `f32`.
    fn default() -> Self {
        Self { tokens: 1024, pages: None, dtype: DType::F32 }
    }
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
    /// Tokens of a page.
    pub const PAGE: usize = 16;

    /// Registers `kv_cache.0.k`, `kv_cache.0.v` and so on, `[pages, PAGE, heads, head_size]`, at the path of `params`, which
    /// must be the root of the network's registry. Every plan of a session has them, so it is made before any of them is traced.
    ///
    /// # Errors
    /// [`Error::Setting`] for a network without a cache, for a cache of nothing, for fewer pages than a text takes, and for more
    /// tokens than the network has positions.
    pub fn new(params: &Params, network: &(impl Sequence + ?Sized), options: &CacheOptions) -> Result<Self> {
        let &CacheOptions { tokens, dtype, .. } = options;
        let wrong = |message: String| Err(Error::setting("cache", message));
        let Some(CacheSizes { layers, heads, head_size, most }) = network.cache_sizes() else {
            return wrong("this network does not predict the next token: it has no KV cache".to_owned());
        };
        if tokens == 0 {
            return wrong("a KV cache of 0 tokens: it must be at least 1".to_owned());
        }
        let (needed, size) = (Self::pages_of(tokens), Self::PAGE);
        let pages = options.pages.unwrap_or(needed);
        if pages < needed {
            return wrong(format!(
                "a KV cache of {pages} pages of {size} tokens for texts of up to {tokens} tokens: these take {needed}"
            ));
        }
        if let Some(most) = most.filter(|most| tokens > *most) {
            return wrong(format!("a KV cache of {tokens} tokens: the network has {most} positions"));
        }
        let of_layer = |i: usize| {
            let params = params.scope(format!("kv_cache.{i}"));
            ["k", "v"].map(|name| params.add_cache(name, [pages, size, heads, head_size], dtype))
        };
        Ok(Self { layers: (0..layers).map(of_layer).collect(), tokens, pages, dtype })
    }

    /// Returns the number of pages that `tokens` tokens of a text take.
    pub fn pages_of(tokens: usize) -> usize {
        tokens.div_ceil(Self::PAGE)
    }

    /// Returns the most tokens of a text.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Returns its bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().flatten().map(|param| self.dtype.bytes(param.shape().numel())).sum()
    }
}
