//! Networks over token ids.

use super::bert::{Bert, BertConfig};
#[cfg(feature = "safetensors")]
use super::config::Pretrained;
use super::context::Context;
use super::gpt::{Gpt, GptConfig};
use super::kv_cache::CacheSizes;
use super::llama::{Llama, LlamaConfig};
use super::transformer::token_loss;
use crate::error::Result;
use crate::graph::{Param, Params, Tensor};

/// A network over sequences of token ids.
pub trait Sequence {
    /// Computes what the output layer reads of `ids`, `u32 [b, s]`: a vector `[.., width]` for each label.
    fn hidden(&self, ids: &Tensor) -> Tensor;

    /// What a [`KvCache`](super::KvCache) holds of each token; `None` if later tokens change what the network computes of
    /// earlier ones.
    fn cache_sizes(&self) -> Option<CacheSizes> {
        None
    }

    /// [`Sequence::hidden`] of tokens that see others than all before them in their row: earlier ones of their text, whose keys
    /// and values are in a cache, where those of the new ones are stored, or those of their document. The trace reports a network
    /// without a cache as a mistake.
    #[track_caller]
    fn hidden_in(&self, ids: &Tensor, context: &Context) -> Tensor {
        let width = self.output().shape().last();
        let message =
            "this network does not predict the next token: it takes neither a KV cache nor documents";
        context.positions.mistake(message, [ids.dim(0), ids.dim(1), width])
    }

    /// The weight `[vocabulary, width]` of the output layer.
    fn output(&self) -> &Param;

    /// Logits become `cap tanh(logit / cap)`; `None`: they stay.
    fn logit_cap(&self) -> Option<f32> {
        None
    }

    /// Computes the logits `[.., vocabulary]` of `ids`, `u32 [b, s]`.
    #[track_caller]
    fn logits(&self, ids: &Tensor) -> Tensor {
        let hidden = self.hidden(ids);
        let weight = hidden.trace().param(self.output());
        hidden.matmul_transposed(&weight, false, true).capped(self.logit_cap())
    }

    /// Computes the logits `[1, vocabulary]` of one position of a sequence: `ids`, `u32 [1, s]`, and the position `at`,
    /// `u32 [1]`.
    #[track_caller]
    fn logits_at(&self, ids: &Tensor, at: &Tensor) -> Tensor {
        self.logits_of(&self.hidden(ids), at)
    }

    /// Computes the logits `[n, vocabulary]` of the rows `at`, `u32 [n]`, of `hidden [.., width]`.
    #[track_caller]
    fn logits_of(&self, hidden: &Tensor, at: &Tensor) -> Tensor {
        let width = hidden.shape().last();
        let rows = hidden.shape().numel() as usize / width;
        let some = hidden.reshape([rows, width]).index_select(0, at);
        let weight = some.trace().param(self.output());
        some.matmul_transposed(&weight, false, true).capped(self.logit_cap())
    }

    /// Computes the mean cross-entropy with `labels`, one for each row of logits. Not all logits need to be
    /// in memory at once.
    #[track_caller]
    fn loss(&self, ids: &Tensor, labels: &Tensor) -> Tensor {
        self.loss_of(&self.hidden(ids), labels)
    }

    /// Computes the mean cross-entropy of `hidden [.., width]` with `labels`.
    #[track_caller]
    fn loss_of(&self, hidden: &Tensor, labels: &Tensor) -> Tensor {
        token_loss(hidden, &hidden.trace().param(self.output()), labels, self.logit_cap())
    }
}

/// Llama and its relatives: name, sizes, tokens in a sequence. There is no position table, so any length works.
const LLAMAS: [(&str, LlamaConfig, usize); 16] = [
    ("llama-tiny", LlamaConfig::TINY, 256),
    ("smollm2-135m", LlamaConfig::SMOLLM2_135M, USUAL),
    ("llama-3.2-1b", LlamaConfig::LLAMA_32_1B, USUAL),
    ("llama-3.2-3b", LlamaConfig::LLAMA_32_3B, USUAL),
    ("llama-3.1-8b", LlamaConfig::LLAMA_31_8B, USUAL),
    ("mistral-7b", LlamaConfig::MISTRAL_7B, USUAL),
    ("qwen2.5-0.5b", LlamaConfig::QWEN25_0_5B, USUAL),
    ("qwen2.5-1.5b", LlamaConfig::QWEN25_1_5B, USUAL),
    ("qwen2.5-7b", LlamaConfig::QWEN25_7B, USUAL),
    ("qwen3-0.6b", LlamaConfig::QWEN3_0_6B, USUAL),
    ("qwen3-1.7b", LlamaConfig::QWEN3_1_7B, USUAL),
    ("qwen3-4b", LlamaConfig::QWEN3_4B, USUAL),
    ("qwen3-8b", LlamaConfig::QWEN3_8B, USUAL),
    ("gemma-2-2b", LlamaConfig::GEMMA_2_2B, USUAL),
    ("gemma-3-270m", LlamaConfig::GEMMA_3_270M, USUAL),
    ("gemma-3-1b", LlamaConfig::GEMMA_3_1B, USUAL),
];

/// GPT-2 in its sizes, and a small one.
const GPTS: [(&str, GptConfig); 5] = [
    ("gpt-nano", GptConfig::NANO),
    ("gpt2", GptConfig::GPT2),
    ("gpt2-medium", GptConfig::GPT2_MEDIUM),
    ("gpt2-large", GptConfig::GPT2_LARGE),
    ("gpt2-xl", GptConfig::GPT2_XL),
];

/// Tokens in a sequence of a Llama, unless it was trained on fewer.
const USUAL: usize = 2048;

/// A network and the layout of its batches.
pub(super) struct Built {
    /// Tokens in a sequence.
    pub seq: usize,
    pub vocabulary: usize,
    /// Labels of a sequence.
    pub labels: usize,
    /// Maps names of Hugging Face's files to the model's.
    pub rename: fn(&str) -> Option<String>,
    pub network: Box<dyn Sequence + Send + Sync>,
}

/// Builds a network by name, for sequences of `seq` tokens, or of as many as in its paper; `None` for an
/// unknown name.
pub(super) fn named(name: &str, params: &Params, seq: Option<usize>) -> Result<Option<Built>> {
    if let Some((_, config)) = GPTS.iter().find(|(known, _)| *known == name) {
        let config = GptConfig { context: seq.unwrap_or(config.context), ..*config };
        return gpt(&config, params, config.context).map(Some);
    }
    if let Some((_, config, usual)) = LLAMAS.iter().find(|(known, ..)| *known == name) {
        return llama(config, params, seq.unwrap_or(*usual)).map(Some);
    }
    if name == "bert-base" {
        let config = BertConfig { context: seq.unwrap_or(BertConfig::BASE.context), ..BertConfig::BASE };
        let (seq, vocabulary) = (config.context, config.vocabulary);
        let network = Box::new(Bert::new(params, &config)?);
        let rename = |name: &str| Some(name.to_owned());
        return Ok(Some(Built { seq, vocabulary, labels: 1, rename, network }));
    }
    Ok(None)
}

/// Builds the network of a `config.json`. A table of positions has the rows of its file, whatever the sequence.
#[cfg(feature = "safetensors")]
pub(super) fn of_config(config: Pretrained, params: &Params, seq: Option<usize>) -> Result<Built> {
    match config {
        Pretrained::Gpt(config) => gpt(&config, params, seq.unwrap_or(config.context)),
        Pretrained::Llama(config, trained) => llama(&config, params, seq.unwrap_or(trained.min(USUAL))),
    }
}

fn gpt(config: &GptConfig, params: &Params, seq: usize) -> Result<Built> {
    let network = Box::new(Gpt::new(params, config)?);
    let rename = Gpt::hugging_face_name;
    Ok(Built { seq, vocabulary: config.vocabulary, labels: seq, rename, network })
}

fn llama(config: &LlamaConfig, params: &Params, seq: usize) -> Result<Built> {
    let network = Box::new(Llama::new(params, config)?);
    let rename = if config.tied { Llama::tied_name } else { Llama::untied_name };
    Ok(Built { seq, vocabulary: config.vocabulary, labels: seq, rename, network })
}

/// Reports sequences longer than the position table, and returns a placeholder for their hidden vectors.
#[track_caller]
pub(super) fn too_long(ids: &Tensor, context: usize, width: usize) -> Tensor {
    let (b, s) = (ids.dim(0), ids.dim(1));
    let message =
        format!("a sequence of {s} tokens is longer than the position table, which has {context} rows");
    ids.mistake(message, [b, s, width])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `sum(p.numel() for p in model.parameters())` of transformers has them.
    #[test]
    fn language_models_have_as_many_parameters_as_published() {
        for (name, count) in [
            ("gpt2", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
            ("smollm2-135m", 134_515_008),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("llama-3.1-8b", 8_030_261_248),
            ("mistral-7b", 7_241_732_096),
            ("qwen2.5-0.5b", 494_032_768),
            ("qwen2.5-1.5b", 1_543_714_304),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-1.7b", 1_720_574_976),
            ("qwen3-4b", 4_022_468_096),
            ("qwen3-8b", 8_190_735_360),
            ("gemma-2-2b", 2_614_341_888),
            ("gemma-3-270m", 268_098_176),
            ("gemma-3-1b", 999_885_952),
        ] {
            let params = Params::new(0);
            named(name, &params, None).expect("valid").expect("known");
            assert_eq!(params.count(), count, "{name}");
        }
    }
}
