//! Llama (Touvron et al. 2023) and its relatives: RMS norms, rotary position embedding, SwiGLU, grouped-query attention.
//! Names and layouts of parameters are those of Hugging Face's `LlamaForCausalLM`, `MistralForCausalLM`,
//! `Qwen2ForCausalLM` and `Qwen3ForCausalLM`.

#[cfg(test)]
mod tests;

use super::context::{Context, Seen};
use super::gemma::Gemma;
use super::kv_cache::CacheSizes;
use super::parts::{self, Part, Samples};
use super::sequence::Sequence;
use super::transformer::{STD, block_rows, perceptron_rows, residual_std};
use crate::error::{Error, Result};
use crate::graph::{Attention, Init, Param, Params, Rope, RopeScaling, Tensor};
use crate::nn::{Embedding, Linear, RmsNorm};

/// Sizes of a Llama model, and what its relatives have besides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Number of distinct tokens.
    pub vocabulary: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Heads of queries in a block.
    pub heads: usize,
    /// Heads of keys and values; a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements of a head, an even number; `width / heads` in most models.
    pub head_size: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Hidden width of a block's perceptron.
    pub hidden: usize,
    /// Frequencies of the rotary position embedding.
    pub rope: Rope,
    /// ε of the norms.
    pub eps: f32,
    /// Positions that a token sees, its own included; `None`: all before it. Mistral 7B v0.1 has 4096. Gemma has it in some
    /// layers only: [`Gemma::global_every`].
    pub window: Option<usize>,
    /// The output weights are the token embeddings.
    pub tied: bool,
    /// The projections to queries, keys and values have biases, as in Qwen 2.
    pub qkv_bias: bool,
    /// Queries and keys of each head pass an RMS norm before they are rotated, as in Qwen 3.
    pub qk_norm: bool,
    /// What Gemma 2 and 3 have besides.
    pub gemma: Option<Gemma>,
}

const LLAMA_32: Rope = Rope {
    base: 500_000.0,
    scaling: RopeScaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, context: 8192.0 },
};

impl LlamaConfig {
    /// The sizes of `stories15M` (Karpathy's llama2.c), except that three query heads share each key and
    /// value head: 14,528,160 parameters.
    pub const TINY: Self = Self {
        vocabulary: 32_000,
        layers: 6,
        heads: 6,
        kv_heads: 2,
        head_size: 48,
        width: 288,
        hidden: 768,
        rope: Rope { base: 10_000.0, scaling: RopeScaling::None },
        eps: 1e-5,
        window: None,
        tied: true,
        qkv_bias: false,
        qk_norm: false,
        gemma: None,
    };
    /// SmolLM2 135M: 134,515,008 parameters.
    pub const SMOLLM2_135M: Self = Self {
        vocabulary: 49_152,
        layers: 30,
        heads: 9,
        kv_heads: 3,
        head_size: 64,
        width: 576,
        hidden: 1536,
        rope: Rope { base: 100_000.0, scaling: RopeScaling::None },
        ..Self::TINY
    };
    /// Llama 3.2 1B: 1,235,814,400 parameters.
    pub const LLAMA_32_1B: Self = Self {
        vocabulary: 128_256,
        layers: 16,
        heads: 32,
        kv_heads: 8,
        head_size: 64,
        width: 2048,
        hidden: 8192,
        rope: LLAMA_32,
        ..Self::TINY
    };
    /// Llama 3.2 3B: 3,212,749,824 parameters.
    pub const LLAMA_32_3B: Self =
        Self { layers: 28, heads: 24, head_size: 128, width: 3072, ..Self::LLAMA_32_1B };
    /// Llama 3.1 8B: 8,030,261,248 parameters.
    pub const LLAMA_31_8B: Self = Self {
        layers: 32,
        heads: 32,
        head_size: 128,
        width: 4096,
        hidden: 14_336,
        rope: Rope {
            base: 500_000.0,
            scaling: RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192.0 },
        },
        tied: false,
        ..Self::LLAMA_32_1B
    };
    /// Mistral 7B v0.1: 7,241,732,096 parameters.
    pub const MISTRAL_7B: Self = Self {
        vocabulary: 32_000,
        rope: Rope { base: 10_000.0, scaling: RopeScaling::None },
        window: Some(4096),
        ..Self::LLAMA_31_8B
    };
    /// Qwen2.5 0.5B: 494,032,768 parameters.
    pub const QWEN25_0_5B: Self = Self {
        vocabulary: 151_936,
        layers: 24,
        heads: 14,
        kv_heads: 2,
        head_size: 64,
        width: 896,
        hidden: 4864,
        rope: QWEN,
        eps: 1e-6,
        qkv_bias: true,
        ..Self::TINY
    };
    /// Qwen2.5 1.5B: 1,543,714,304 parameters.
    pub const QWEN25_1_5B: Self =
        Self { layers: 28, heads: 12, head_size: 128, width: 1536, hidden: 8960, ..Self::QWEN25_0_5B };
    /// Qwen2.5 7B: 7,615,616,512 parameters.
    pub const QWEN25_7B: Self = Self {
        vocabulary: 152_064,
        layers: 28,
        heads: 28,
        kv_heads: 4,
        head_size: 128,
        width: 3584,
        hidden: 18_944,
        tied: false,
        ..Self::QWEN25_0_5B
    };
    /// Qwen3 0.6B: 596,049,920 parameters.
    pub const QWEN3_0_6B: Self = Self {
        vocabulary: 151_936,
        layers: 28,
        heads: 16,
        kv_heads: 8,
        head_size: 128,
        width: 1024,
        hidden: 3072,
        rope: QWEN,
        eps: 1e-6,
        qk_norm: true,
        ..Self::TINY
    };
    /// Qwen3 1.7B: 1,720,574,976 parameters.
    pub const QWEN3_1_7B: Self = Self { width: 2048, hidden: 6144, ..Self::QWEN3_0_6B };
    /// Qwen3 4B: 4,022,468,096 parameters.
    pub const QWEN3_4B: Self = Self { layers: 36, heads: 32, width: 2560, hidden: 9728, ..Self::QWEN3_0_6B };
    /// Qwen3 8B: 8,190,735,360 parameters.
    pub const QWEN3_8B: Self = Self { width: 4096, hidden: 12_288, tied: false, ..Self::QWEN3_4B };

    /// The window and the rotary position embedding of a layer.
    fn positions(&self, layer: usize) -> (Option<usize>, Rope) {
        match self.gemma {
            Some(gemma) if (layer + 1).is_multiple_of(gemma.global_every.max(1)) => (None, self.rope),
            Some(gemma) => (self.window, gemma.local_rope.unwrap_or(self.rope)),
            None => (self.window, self.rope),
        }
    }

    /// # Errors
    /// [`Error::Setting`] if `kv_heads` does not divide `heads`, or if the head size is odd.
    fn check_heads(&self) -> Result<()> {
        let Self { heads, kv_heads, head_size, .. } = *self;
        if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let message = format!(
                "{heads} heads and {kv_heads} heads of keys and values: the second must divide the first"
            );
            return Err(Error::setting("heads", message));
        }
        if head_size == 0 || !head_size.is_multiple_of(2) {
            let message =
                format!("a rotary position embedding rotates pairs, and heads have {head_size} elements");
            return Err(Error::setting("head_size", message));
        }
        Ok(())
    }
}

const QWEN: Rope = Rope { base: 1_000_000.0, scaling: RopeScaling::None };

/// A Llama model: token embeddings, pre-norm blocks, a final norm and output weights.
#[derive(Clone, Debug)]
pub struct Llama {
    tokens: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    /// `lm_head.weight`, or the token embeddings.
    output: Param,
    config: LlamaConfig,
}

#[derive(Clone, Debug)]
struct Block {
    path: String,
    /// Of what attention and perceptron read.
    norms: [RmsNorm; 2],
    /// Of what they return.
    after: Option<[RmsNorm; 2]>,
    attention: SelfAttention,
    gate: Linear,
    up: Linear,
    down: Linear,
    config: LlamaConfig,
}

#[derive(Clone, Debug)]
struct SelfAttention {
    path: String,
    /// Queries, keys, values.
    projections: [Linear; 3],
    /// Of queries and keys.
    norms: Option<[RmsNorm; 2]>,
    output: Linear,
    attention: Attention,
    rope: Rope,
    config: LlamaConfig,
}

impl Llama {
    /// Registers `model.embed_tokens.weight` and so on at the path of `params`.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if `kv_heads` does not divide `heads`, or if the head size is odd.
    pub fn new(params: &Params, config: &LlamaConfig) -> Result<Self> {
        let model = params.scope("model");
        let LlamaConfig { vocabulary, width, .. } = *config;
        let tokens = Embedding::with_std(&model.scope("embed_tokens"), vocabulary, width, STD);
        let block = |i: usize| Block::new(&model.scope(format!("layers.{i}")), i, config);
        let blocks = (0..config.layers).map(block).collect::<Result<_>>()?;
        let norm = norm(&model.scope("norm"), width, config);
        let output = match config.tied {
            true => tokens.weight.clone(),
            false => params.scope("lm_head").add("weight", [vocabulary, width], Init::Normal(STD)),
        };
        Ok(Self { tokens, blocks, norm, output, config: *config })
    }

    /// Maps the name of a parameter in Hugging Face's files to the name in a model without output weights of its own:
    /// `lm_head.weight` is the token embedding. Tables of frequencies in older files are not needed (`None`).
    pub fn tied_name(name: &str) -> Option<String> {
        match name {
            "lm_head.weight" => Some("model.embed_tokens.weight".to_owned()),
            _ => Self::untied_name(name),
        }
    }

    /// [`Llama::tied_name`] for a model with output weights of its own.
    pub fn untied_name(name: &str) -> Option<String> {
        (!name.ends_with(".rotary_emb.inv_freq")).then(|| name.to_owned())
    }

    /// The most tokens of a part in which blocks are computed.
    fn rows(&self, ids: &Tensor) -> usize {
        let LlamaConfig { width, heads, head_size, .. } = self.config;
        block_rows(ids.shape().numel() as usize, width.max(heads * head_size))
    }

    /// What the output layer reads, with blocks computed in parts of at most `rows` tokens.
    #[track_caller]
    fn stream(&self, ids: &Tensor, context: Option<&Context>, rows: usize) -> Tensor {
        let (b, s) = (ids.dim(0), ids.dim(1));
        let tokens = ids.reshape([b * s]).apply(&self.tokens);
        let tokens = match self.config.gemma {
            Some(_) => tokens.scale((self.config.width as f32).sqrt()),
            None => tokens,
        };
        let windows = self.blocks.iter().map(|block| block.attention.attention.window).collect();
        let samples = Samples::all(ids, rows, context, &windows);
        let mut streams = parts::split(&tokens, &samples);
        for (i, block) in self.blocks.iter().enumerate() {
            streams = block.forward(&streams, &samples, context.map(|c| c.layer(i)).as_ref());
        }
        parts::join(&streams, &tokens).apply(&self.norm).reshape([b, s, self.config.width])
    }
}

impl Sequence for Llama {
    #[track_caller]
    fn hidden(&self, ids: &Tensor) -> Tensor {
        self.stream(ids, None, self.rows(ids))
    }

    fn cache_sizes(&self) -> Option<CacheSizes> {
        let LlamaConfig { layers, kv_heads, head_size, .. } = self.config;
        Some(CacheSizes { layers, heads: kv_heads, head_size, most: None })
    }

    #[track_caller]
    fn hidden_in(&self, ids: &Tensor, context: &Context) -> Tensor {
        // Attention over a cache counts the new tokens from its length: it takes all of them at once.
        let rows = if context.documents().is_some() { self.rows(ids) } else { usize::MAX };
        self.stream(ids, Some(context), rows)
    }

    fn output(&self) -> &Param {
        &self.output
    }

    fn logit_cap(&self) -> Option<f32> {
        self.config.gemma.and_then(|gemma| gemma.caps).map(|[_, cap]| cap)
    }
}

impl Block {
    fn new(params: &Params, i: usize, config: &LlamaConfig) -> Result<Self> {
        let LlamaConfig { width, hidden, layers, .. } = *config;
        let named = |names: [&str; 2]| names.map(|name| norm(&params.scope(name), width, config));
        let (norms, after) = match config.gemma {
            Some(_) => (
                named(["input_layernorm", "pre_feedforward_layernorm"]),
                Some(named(["post_attention_layernorm", "post_feedforward_layernorm"])),
            ),
            None => (named(["input_layernorm", "post_attention_layernorm"]), None),
        };
        let attention = SelfAttention::new(&params.scope("self_attn"), i, config)?;
        let mlp = params.scope("mlp");
        let layer =
            |name, inputs, outputs, std| Linear::normal_without_bias(&mlp.scope(name), inputs, outputs, std);
        Ok(Self {
            path: params.path().to_owned(),
            norms,
            after,
            attention,
            gate: layer("gate_proj", width, hidden, STD),
            up: layer("up_proj", width, hidden, STD),
            down: layer("down_proj", hidden, width, residual_std(2 * layers)),
            config: *config,
        })
    }

    /// What attention (0) or the perceptron (1) adds to the stream.
    #[track_caller]
    fn added(&self, i: usize, y: Tensor) -> Tensor {
        match &self.after {
            Some(norms) => y.apply(&norms[i]),
            None => y,
        }
    }

    /// The parts `[b, s, width]` of the stream, shapes unchanged.
    #[track_caller]
    fn forward(&self, streams: &[Vec<Tensor>], samples: &[Samples], seen: Option<&Seen>) -> Vec<Vec<Tensor>> {
        let tokens = streams.iter().flatten().map(|x| x.dim(0) * x.dim(1)).sum();
        let rows = perceptron_rows(tokens, self.config.hidden);
        let of_samples = |(streams, samples): (&Vec<Tensor>, &Samples)| {
            let in_layer = || self.forward_samples(streams, samples, rows, seen);
            streams[0].trace().clone().layer(&self.path, in_layer)
        };
        parts::rows_of_one(streams.iter().zip(samples).map(of_samples).collect())
    }

    /// The results of all parts of some samples. The perceptron processes `rows` tokens at a time.
    #[track_caller]
    fn forward_samples(
        &self,
        streams: &[Tensor],
        samples: &Samples,
        rows: usize,
        seen: Option<&Seen>,
    ) -> Vec<Tensor> {
        let normal: Vec<Tensor> = streams.iter().map(|x| x.apply(&self.norms[0])).collect();
        let whole = match &samples.parts[..] {
            [part] => Some(self.attention.queries(part, &normal[0])),
            _ => None,
        };
        let keys_and_values = self.attention.keys_and_values(&normal, samples.positions.as_ref());
        let one = |(part, x): (&Part, &Tensor)| {
            // Several parts are normalized again: no gradient of one waits for those of keys and values, which all parts read.
            let queries = || self.attention.queries(part, &x.apply(&self.norms[0]));
            let q = whole.clone().unwrap_or_else(queries);
            let attended = self.attention.attend(part, &q, &keys_and_values, seen);
            x.add(&self.added(0, attended)).in_chunks(rows, |x| {
                let normal = x.apply(&self.norms[1]);
                // SwiGLU, in Gemma GEGLU (Shazeer 2020).
                let gate = normal.apply(&self.gate);
                let gate = if self.config.gemma.is_some() { gate.gelu_tanh() } else { gate.silu() };
                let gated = gate.mul(&normal.apply(&self.up));
                x.add(&self.added(1, gated.apply(&self.down)))
            })
        };
        samples.parts.iter().zip(streams).map(one).collect()
    }
}

impl SelfAttention {
    fn new(params: &Params, i: usize, config: &LlamaConfig) -> Result<Self> {
        let LlamaConfig { heads, kv_heads, head_size, width, layers, .. } = *config;
        config.check_heads()?;
        let (window, rope) = config.positions(i);
        let attention = Attention {
            window,
            scale: config.gemma.map(|gemma| 1.0 / gemma.score_size.sqrt()),
            softcap: config.gemma.and_then(|gemma| gemma.caps).map(|[cap, _]| cap),
            ..Attention::causal()
        };
        let project = |(name, heads): (&str, usize)| {
            let (params, size) = (params.scope(name), heads * head_size);
            match config.qkv_bias {
                true => Linear::normal(&params, width, size, STD),
                false => Linear::normal_without_bias(&params, width, size, STD),
            }
        };
        let projections = [("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)].map(project);
        let norms = config
            .qk_norm
            .then(|| ["q_norm", "k_norm"].map(|name| norm(&params.scope(name), head_size, config)));
        let std = residual_std(2 * layers);
        let output = Linear::normal_without_bias(&params.scope("o_proj"), heads * head_size, width, std);
        let path = params.path().to_owned();
        Ok(Self { path, projections, norms, output, attention, rope, config: *config })
    }

    /// Projection 0 (queries), 1 (keys) or 2 (values) of `x [b, s, width]`, normalized where the model does it: `[b, s, h, d]`.
    #[track_caller]
    fn project(&self, i: usize, x: &Tensor) -> Tensor {
        let LlamaConfig { heads, kv_heads, head_size, .. } = self.config;
        let heads = if i == 0 { heads } else { kv_heads };
        let projected = x.apply(&self.projections[i]).reshape([x.dim(0), x.dim(1), heads, head_size]);
        match &self.norms {
            Some(norms) if i < 2 => projected.apply(&norms[i]),
            _ => projected,
        }
    }

    /// Rotates queries or keys at their positions, or from position 0 on.
    #[track_caller]
    fn rotate(&self, x: &Tensor, positions: Option<&Tensor>) -> Tensor {
        match positions {
            Some(positions) => x.rotary_at(positions, x.dim(2), self.rope),
            None => x.rotary(x.dim(2), self.rope),
        }
    }

    /// Queries `[b, s, heads, d]` of a part, `x [b, s, width]`.
    #[track_caller]
    fn queries(&self, part: &Part, x: &Tensor) -> Tensor {
        let rotated = || self.rotate(&self.project(0, x), part.positions.as_ref());
        x.trace().clone().layer(&self.path, rotated)
    }

    /// Keys and values `[b, s, kv heads, d]` of all parts, `[b, s, width]` each, of some samples.
    #[track_caller]
    fn keys_and_values(&self, parts: &[Tensor], positions: Option<&Tensor>) -> [Tensor; 2] {
        let joined = |i: usize| {
            let each: Vec<Tensor> = parts.iter().map(|x| self.project(i, x)).collect();
            parts::concatenated(&each, 1)
        };
        parts[0].trace().clone().layer(&self.path, || [self.rotate(&joined(1), positions), joined(2)])
    }

    /// What attention computes of a part: `[b, s, width]`.
    #[track_caller]
    fn attend(&self, part: &Part, q: &Tensor, [k, v]: &[Tensor; 2], seen: Option<&Seen>) -> Tensor {
        let (b, s) = (q.dim(0), q.dim(1));
        q.trace().clone().layer(&self.path, || {
            let result = match seen {
                Some(seen) if seen.context.documents().is_none() => seen.attend([q, k, v], &self.attention),
                _ => self.attend_in_window(part, q, [k, v]),
            };
            result.reshape([b, s, result.dim(2) * result.dim(3)]).apply(&self.output)
        })
    }

    /// Attention of the queries of a part to the keys of their samples, from the first one on that they see.
    #[track_caller]
    fn attend_in_window(&self, part: &Part, q: &Tensor, keys_and_values: [&Tensor; 2]) -> Tensor {
        let first = part.first_key(self.attention.window);
        let [k, v] = keys_and_values.map(|x| match first {
            0 => x.clone(),
            _ => x.slice(1, first..part.end()),
        });
        let options = Attention { offset: part.first - first, ..self.attention };
        match part.documents.get(&first) {
            Some(documents) => q.attention_within(&k, &v, documents, &options),
            None => q.attention(&k, &v, &options),
        }
    }
}

fn norm(params: &Params, columns: usize, config: &LlamaConfig) -> RmsNorm {
    let mut norm = RmsNorm::with_offset(params, columns, if config.gemma.is_some() { 1.0 } else { 0.0 });
    norm.eps = config.eps;
    norm
}
