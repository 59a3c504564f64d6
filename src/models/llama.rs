//! Llama (Touvron et al. 2023): RMS norms, rotary position embedding, SwiGLU, grouped-query attention, no
//! biases.

use super::sequence::Sequence;
use super::transformer::{Heads, STD, residual_std, token_loss};
use crate::error::Result;
use crate::graph::{Attention, Params, Tensor};
use crate::nn::{Embedding, Linear, Module, RmsNorm};

/// Sizes of a Llama model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Number of distinct tokens.
    pub vocabulary: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads in a block; a divisor of `width`.
    pub heads: usize,
    /// Heads of keys and values; a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Hidden width of a block's perceptron.
    pub hidden: usize,
    /// Base of the rotary position embedding.
    pub base: f32,
    /// ε of the norms.
    pub eps: f32,
    /// Positions that a token sees, its own included; `None`: all before it. Mistral 7B has 4096.
    pub window: Option<usize>,
}

impl LlamaConfig {
    /// The sizes of `stories15M` (Karpathy's llama2.c), except that three query heads share each key and
    /// value head: 14,528,160 parameters, with output weights tied to the token embeddings.
    pub const TINY: Self = Self {
        vocabulary: 32_000,
        layers: 6,
        heads: 6,
        kv_heads: 2,
        width: 288,
        hidden: 768,
        base: 10_000.0,
        eps: 1e-5,
        window: None,
    };
    /// Tokens in a sequence of `stories15M`. There is no position table, so any length works.
    pub(crate) const TINY_CONTEXT: usize = 256;
}

/// A Llama model with output weights tied to the token embeddings.
#[derive(Clone, Debug)]
pub struct Llama {
    tokens: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
}

#[derive(Clone, Debug)]
struct Block {
    norms: [RmsNorm; 2],
    attention: [Linear; 2],
    gate: Linear,
    up: Linear,
    down: Linear,
    heads: Heads,
}

impl Llama {
    /// Registers `tok_embeddings.weight` and so on at the path of `params`; queries, keys and values are one
    /// layer, `attention.wqkv`.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if `heads` does not divide `width`, if `kv_heads` does not
    /// divide `heads`, or if the head size is odd.
    pub fn new(params: &Params, config: &LlamaConfig) -> Result<Self> {
        let tokens =
            Embedding::with_std(&params.scope("tok_embeddings"), config.vocabulary, config.width, STD);
        let block = |i: usize| Block::new(&params.scope(format!("layers.{i}")), config);
        let blocks = (0..config.layers).map(block).collect::<Result<_>>()?;
        Ok(Self { tokens, blocks, norm: norm(&params.scope("norm"), config) })
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor) -> Tensor {
        let stream = self.blocks.iter().fold(ids.apply(&self.tokens), |x, block| x.apply(block));
        stream.apply(&self.norm)
    }
}

impl Sequence for Llama {
    #[track_caller]
    fn logits(&self, ids: &Tensor) -> Tensor {
        let hidden = self.hidden(ids);
        let weight = hidden.trace().param(&self.tokens.weight);
        hidden.matmul_transposed(&weight, false, true)
    }

    #[track_caller]
    fn loss(&self, ids: &Tensor, labels: &Tensor) -> Tensor {
        let hidden = self.hidden(ids);
        let weight = hidden.trace().param(&self.tokens.weight);
        token_loss(&hidden, &weight, labels)
    }
}

impl Block {
    fn new(params: &Params, config: &LlamaConfig) -> Result<Self> {
        let LlamaConfig { heads, kv_heads, width, hidden, base, layers, window, .. } = *config;
        let attention = Attention { window, ..Attention::causal() };
        let heads = Heads { queries: heads, pairs: kv_heads, rotary: Some(base), attention };
        heads.check(width)?;
        let layer = |name, inputs, outputs, std| {
            Linear::normal_without_bias(&params.scope(name), inputs, outputs, std)
        };
        let adds = residual_std(2 * layers);
        Ok(Self {
            norms: ["attention_norm", "ffn_norm"].map(|name| norm(&params.scope(name), config)),
            attention: [
                layer("attention.wqkv", width, heads.packed(width), STD),
                layer("attention.wo", width, width, adds),
            ],
            gate: layer("feed_forward.w1", width, hidden, STD),
            up: layer("feed_forward.w3", width, hidden, STD),
            down: layer("feed_forward.w2", hidden, width, adds),
            heads,
        })
    }
}

impl Module for Block {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let [first, last] = &self.attention;
        let x = x.add(&self.heads.attend(&x.apply(&self.norms[0]), [first, last]));
        let normal = x.apply(&self.norms[1]);
        // SwiGLU (Shazeer 2020).
        let gated = normal.apply(&self.gate).silu().mul(&normal.apply(&self.up));
        x.add(&gated.apply(&self.down))
    }
}

fn norm(params: &Params, config: &LlamaConfig) -> RmsNorm {
    let mut norm = RmsNorm::new(params, config.width);
    norm.eps = config.eps;
    norm
}
