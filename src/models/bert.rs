//! BERT (Devlin et al. 2018): post-norm, learned positions, token types, a pooler.

use super::sequence::{Sequence, too_long};
use super::transformer::{Heads, STD};
use crate::error::Result;
use crate::graph::{Attention, Init, Param, Params, Tensor};
use crate::nn::{Dropout, Embedding, LayerNorm, Linear, Module};

/// Sizes of a BERT model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BertConfig {
    /// Number of distinct tokens.
    pub vocabulary: usize,
    /// Rows of the position table: the maximum sequence length.
    pub context: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads in a block; a divisor of `width`.
    pub heads: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Dropout probability in training, for elements of the embeddings, of the block results and for
    /// attention weights.
    pub dropout: f64,
}

impl BertConfig {
    /// BERT base, uncased: 109,482,240 parameters with the pooler.
    pub const BASE: Self =
        Self { vocabulary: 30_522, context: 512, layers: 12, heads: 12, width: 768, dropout: 0.1 };
    /// Number of token types: first and second sentence.
    pub const TYPES: usize = 2;
}

/// BERT's encoder with its pooler. All sequences of a batch have full length: there is no padding mask.
///
/// As a [`Sequence`] it predicts one token for a whole sequence: classification by label words (Schick &
/// Schütze 2021). The output weights are the token embeddings, so the task adds no parameters. A second input
/// `types`, `u32 [b, s]`, holds the token types. For another task, add layers after [`Bert::hidden`] or
/// [`Bert::pooled`].
#[derive(Clone, Debug)]
pub struct Bert {
    config: BertConfig,
    tokens: Embedding,
    positions: Param,
    types: Embedding,
    norm: LayerNorm,
    blocks: Vec<Block>,
    pooler: Linear,
}

#[derive(Clone, Debug)]
struct Block {
    attention: [Linear; 2],
    perceptron: [Linear; 2],
    norms: [LayerNorm; 2],
    heads: Heads,
    dropout: Dropout,
}

impl Bert {
    /// Registers `bert.embeddings.word_embeddings.weight` and so on at the path of `params`. The names are
    /// those of Hugging Face, except `attention.self.qkv`, which holds queries, keys and values as one layer.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if the number of heads does not divide the width.
    pub fn new(params: &Params, config: &BertConfig) -> Result<Self> {
        let params = params.scope("bert");
        let embeddings = params.scope("embeddings");
        let table = |name, rows| Embedding::with_std(&embeddings.scope(name), rows, config.width, STD);
        let tokens = table("word_embeddings", config.vocabulary);
        let positions = embeddings.scope("position_embeddings");
        let positions = positions.add("weight", [config.context, config.width], Init::Normal(STD));
        let types = table("token_type_embeddings", BertConfig::TYPES);
        let norm = norm(&embeddings.scope("LayerNorm"), config.width);
        let block = |i: usize| Block::new(&params.scope(format!("encoder.layer.{i}")), config);
        let blocks = (0..config.layers).map(block).collect::<Result<_>>()?;
        let pooler = Linear::normal(&params.scope("pooler.dense"), config.width, config.width, STD);
        Ok(Self { config: *config, tokens, positions, types, norm, blocks, pooler })
    }

    /// Computes a vector for each token: `ids` and `types`, `u32 [b, s]` → `[b, s, width]`.
    #[track_caller]
    pub fn hidden(&self, ids: &Tensor, types: &Tensor) -> Tensor {
        let (s, context) = (ids.dim(1), self.config.context);
        if s > context {
            return too_long(ids, context, self.config.width);
        }
        let positions = ids.trace().param(&self.positions);
        let positions = if s < context { positions.slice(0, 0..s) } else { positions };
        let x = ids.apply(&self.tokens).add(&types.apply(&self.types)).add(&positions);
        let x = x.apply(&self.norm).apply(&Dropout { p: self.config.dropout });
        self.blocks.iter().fold(x, |x, block| x.apply(block))
    }

    /// Computes a vector for each sequence, from its first token: `[b, width]`.
    #[track_caller]
    pub fn pooled(&self, ids: &Tensor, types: &Tensor) -> Tensor {
        let hidden = self.hidden(ids, types);
        let first = hidden.slice(1, 0..1).reshape([ids.dim(0), self.config.width]);
        first.apply(&self.pooler).tanh()
    }
}

/// Predicts a token for each sequence, from [`Bert::pooled`]; declares an input `types`.
impl Sequence for Bert {
    #[track_caller]
    fn hidden(&self, ids: &Tensor) -> Tensor {
        let types = ids.trace().ids("types", ids.shape(), BertConfig::TYPES as u32);
        self.pooled(ids, &types)
    }

    fn output(&self) -> &Param {
        &self.tokens.weight
    }
}

impl Block {
    fn new(params: &Params, config: &BertConfig) -> Result<Self> {
        let BertConfig { heads, width, dropout, .. } = *config;
        let attention = Attention { dropout, ..Attention::default() };
        let heads = Heads { heads, attention };
        heads.check(width)?;
        let layer = |name, inputs, outputs| Linear::normal(&params.scope(name), inputs, outputs, STD);
        let norm = |name| norm(&params.scope(name), width);
        let attention =
            [layer("attention.self.qkv", width, 3 * width), layer("attention.output.dense", width, width)];
        let first = norm("attention.output.LayerNorm");
        let perceptron =
            [layer("intermediate.dense", width, 4 * width), layer("output.dense", 4 * width, width)];
        let norms = [first, norm("output.LayerNorm")];
        Ok(Self { attention, perceptron, norms, heads, dropout: Dropout { p: dropout } })
    }
}

impl Module for Block {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let [first, last] = &self.attention;
        let mixed = self.heads.attend(x, [first, last], None).apply(&self.dropout);
        let x = mixed.add(x).apply(&self.norms[0]);
        let [first, last] = &self.perceptron;
        let result = x.apply(first).gelu().apply(last).apply(&self.dropout);
        result.add(&x).apply(&self.norms[1])
    }
}

fn norm(params: &Params, width: usize) -> LayerNorm {
    let mut norm = LayerNorm::new(params, width);
    norm.eps = 1e-12;
    norm
}
