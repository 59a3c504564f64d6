//! GPT-2 (Radford et al. 2019): names and layouts of parameters are those of Hugging Face's
//! `GPT2LMHeadModel`, so that weights can be exchanged in both directions.

use super::context::{Context, Seen};
use super::kv_cache::CacheSizes;
use super::sequence::{Sequence, too_long};
use super::transformer::{Heads, STD, residual_std};
use crate::error::Result;
use crate::graph::{Attention, Init, Param, Params, Tensor};
use crate::nn::{Dropout, Embedding, LayerNorm, Lora, Module};

/// Sizes of a GPT model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptConfig {
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

impl GptConfig {
    /// About a million parameters, with bytes as tokens.
    pub const NANO: Self =
        Self { vocabulary: 256, context: 256, layers: 5, heads: 4, width: 128, dropout: 0.0 };
    /// GPT-2 as published: 124,439,808 parameters.
    pub const GPT2: Self =
        Self { vocabulary: 50_257, context: 1024, layers: 12, heads: 12, width: 768, dropout: 0.1 };
    /// GPT-2 medium: 354,823,168 parameters.
    pub const GPT2_MEDIUM: Self = Self { layers: 24, heads: 16, width: 1024, ..Self::GPT2 };
    /// GPT-2 large: 774,030,080 parameters.
    pub const GPT2_LARGE: Self = Self { layers: 36, heads: 20, width: 1280, ..Self::GPT2 };
    /// GPT-2 XL: 1,557,611,200 parameters.
    pub const GPT2_XL: Self = Self { layers: 48, heads: 25, width: 1600, ..Self::GPT2 };
}

/// A GPT model: token and position embeddings, pre-norm blocks, a final norm, and output weights tied to the
/// token embeddings.
#[derive(Clone, Debug)]
pub struct Gpt {
    config: GptConfig,
    tokens: Embedding,
    positions: Param,
    blocks: Vec<GptBlock>,
    norm: LayerNorm,
}

impl Gpt {
    /// Registers `transformer.wte.weight` and so on at the path of `params`.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if the number of heads does not divide the width.
    pub fn new(params: &Params, config: &GptConfig) -> Result<Self> {
        let params = params.scope("transformer");
        let wide = Init::Normal(STD);
        let tokens = Embedding::with_std(&params.scope("wte"), config.vocabulary, config.width, STD);
        let positions = params.scope("wpe").add("weight", [config.context, config.width], wide);
        let block = |i: usize| GptBlock::new(&params.scope(format!("h.{i}")), config);
        let blocks = (0..config.layers).map(block).collect::<Result<_>>()?;
        let norm = LayerNorm::new(&params.scope("ln_f"), config.width);
        Ok(Self { config: *config, tokens, positions, blocks, norm })
    }

    /// Returns the sizes.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Maps the name of a parameter in Hugging Face's files, with or without the leading `transformer.`, to
    /// the name in this model. `lm_head.weight` is the token embedding. The masks in older files are not
    /// needed (`None`). For `Session::load_named`.
    pub fn hugging_face_name(name: &str) -> Option<String> {
        if name == "lm_head.weight" {
            return Some("transformer.wte.weight".to_owned());
        }
        if name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") {
            return None;
        }
        let bare = name.strip_prefix("transformer.").unwrap_or(name);
        Some(format!("transformer.{bare}"))
    }

    #[track_caller]
    fn stream(&self, ids: &Tensor, positions: &Tensor, context: Option<&Context>) -> Tensor {
        let dropout = Dropout { p: self.config.dropout };
        let mut x = ids.apply(&self.tokens).add(positions).apply(&dropout);
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.after(&x, context.map(|context| context.layer(i)).as_ref());
        }
        x.apply(&self.norm)
    }
}

impl Sequence for Gpt {
    /// The trace reports a sequence longer than the position table as a mistake.
    #[track_caller]
    fn hidden(&self, ids: &Tensor) -> Tensor {
        let (s, context) = (ids.dim(1), self.config.context);
        if s > context {
            return too_long(ids, context, self.config.width);
        }
        let positions = ids.trace().param(&self.positions);
        let positions = if s < context { positions.slice(0, 0..s) } else { positions };
        self.stream(ids, &positions, None)
    }

    fn cache_sizes(&self) -> Option<CacheSizes> {
        let GptConfig { layers, heads, width, context, .. } = self.config;
        Some(CacheSizes { layers, heads, head_size: width / heads, most: Some(context) })
    }

    #[track_caller]
    fn hidden_in(&self, ids: &Tensor, context: &Context) -> Tensor {
        let positions = ids.trace().param(&self.positions).embedding(&context.positions);
        self.stream(ids, &positions, Some(context))
    }

    fn output(&self) -> &Param {
        &self.tokens.weight
    }
}

/// `x + attention(norm(x))`, and then `x + perceptron(norm(x))`.
#[derive(Clone, Debug)]
pub struct GptBlock {
    norms: [LayerNorm; 2],
    attention: [Conv1D; 2],
    perceptron: [Conv1D; 2],
    heads: Heads,
    dropout: Dropout,
}

impl GptBlock {
    /// Registers `ln_1.weight` and so on at the path of `params`.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if the number of heads does not divide the width.
    pub fn new(params: &Params, config: &GptConfig) -> Result<Self> {
        let GptConfig { heads, width, dropout, layers, .. } = *config;
        let attention = Attention { dropout, ..Attention::causal() };
        let heads = Heads { heads, attention };
        heads.check(width)?;
        let norm = |name| LayerNorm::new(&params.scope(name), width);
        let layer = |name, inputs, outputs, std| Conv1D::new(&params.scope(name), inputs, outputs, std);
        // Both halves of every block add to the residual stream.
        let adds = residual_std(2 * layers);
        let first = norm("ln_1");
        let attention =
            [layer("attn.c_attn", width, 3 * width, STD), layer("attn.c_proj", width, width, adds)];
        let norms = [first, norm("ln_2")];
        let perceptron =
            [layer("mlp.c_fc", width, 4 * width, STD), layer("mlp.c_proj", 4 * width, width, adds)];
        Ok(Self { norms, attention, perceptron, heads, dropout: Dropout { p: dropout } })
    }
}

impl Module for GptBlock {
    /// `x [b, s, width]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.after(x, None)
    }
}

impl GptBlock {
    #[track_caller]
    fn after(&self, x: &Tensor, seen: Option<&Seen>) -> Tensor {
        let [first, last] = &self.attention;
        let mixed = self.heads.attend(&x.apply(&self.norms[0]), [first, last], seen);
        let x = x.add(&mixed.apply(&self.dropout));
        let [first, last] = &self.perceptron;
        let result = x.apply(&self.norms[1]).apply(first).gelu_tanh().apply(last);
        x.add(&result.apply(&self.dropout))
    }
}

/// `y = x W + b` with weight `[in, out]`: `transformers.pytorch_utils.Conv1D`.
#[derive(Clone, Debug)]
struct Conv1D {
    path: String,
    weight: Param,
    bias: Param,
    lora: Option<Lora>,
}

impl Conv1D {
    #[track_caller]
    fn new(params: &Params, inputs: usize, outputs: usize, std: f32) -> Self {
        let weight = params.add("weight", [inputs, outputs], Init::Normal(std));
        let bias = params.add("bias", [outputs], Init::Constant(0.0));
        let lora = Lora::of(params, &weight, true);
        Self { path: params.path().to_owned(), weight, bias, lora }
    }
}

impl Module for Conv1D {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            let weight = trace.param(&self.weight);
            let product = x.matmul(&weight);
            let product = match &self.lora {
                Some(lora) => lora.adapt(&product, x, &weight),
                None => product,
            };
            product.add(&trace.param(&self.bias))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_prefix_are_mapped() {
        let name = |name: &str| Gpt::hugging_face_name(name);
        for theirs in ["h.0.attn.c_attn.bias", "transformer.h.0.attn.c_attn.bias"] {
            assert_eq!(name(theirs).as_deref(), Some("transformer.h.0.attn.c_attn.bias"));
        }
        for tied in ["wte.weight", "lm_head.weight"] {
            assert_eq!(name(tied).as_deref(), Some("transformer.wte.weight"));
        }
        assert_eq!(name("h.3.attn.bias"), None);
        assert_eq!(name("transformer.h.3.attn.masked_bias"), None);
    }
}
