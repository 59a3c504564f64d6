//! Networks over token ids.

use super::bert::{Bert, BertConfig};
use super::gpt::{Gpt, GptConfig};
use super::llama::{Llama, LlamaConfig};
use crate::error::Result;
use crate::graph::{Params, Tensor};

/// A network over sequences of token ids.
pub trait Sequence {
    /// Computes the logits `[.., vocabulary]` of `ids`, `u32 [b, s]`.
    fn logits(&self, ids: &Tensor) -> Tensor;

    /// Computes the mean cross-entropy with `labels`, one for each row of logits. Not all logits need to be
    /// in memory at once.
    fn loss(&self, ids: &Tensor, labels: &Tensor) -> Tensor;
}

/// The names that [`named`] knows.
pub(super) const NAMES: [&str; 5] = ["gpt-nano", "gpt2", "gpt2-medium", "llama-tiny", "bert-base"];

/// A network and the layout of its batches.
pub(super) struct Named {
    pub name: &'static str,
    /// Tokens in a sequence.
    pub seq: usize,
    pub vocabulary: usize,
    /// Labels of a sequence.
    pub labels: usize,
    pub network: Box<dyn Sequence + Send + Sync>,
}

/// Builds a network by name, for sequences of `seq` tokens, or of as many as in its paper; `None` for an
/// unknown name.
pub(super) fn named(name: &str, params: &Params, seq: Option<usize>) -> Result<Option<Named>> {
    let Some(&name) = NAMES.iter().find(|known| **known == name) else { return Ok(None) };
    let gpt = |config: GptConfig| -> Result<Named> {
        let config = GptConfig { context: seq.unwrap_or(config.context), ..config };
        let (seq, vocabulary) = (config.context, config.vocabulary);
        Ok(Named { name, seq, vocabulary, labels: seq, network: Box::new(Gpt::new(params, &config)?) })
    };
    Ok(Some(match name {
        "gpt-nano" => gpt(GptConfig::NANO)?,
        "gpt2" => gpt(GptConfig::GPT2)?,
        "gpt2-medium" => gpt(GptConfig::GPT2_MEDIUM)?,
        "llama-tiny" => {
            let config = LlamaConfig::TINY;
            let (seq, vocabulary) = (seq.unwrap_or(LlamaConfig::TINY_CONTEXT), config.vocabulary);
            Named { name, seq, vocabulary, labels: seq, network: Box::new(Llama::new(params, &config)?) }
        }
        _ => {
            let config = BertConfig { context: seq.unwrap_or(BertConfig::BASE.context), ..BertConfig::BASE };
            let (seq, vocabulary) = (config.context, config.vocabulary);
            Named { name, seq, vocabulary, labels: 1, network: Box::new(Bert::new(params, &config)?) }
        }
    }))
}

/// Reports sequences longer than the position table, and returns a placeholder for their hidden vectors.
#[track_caller]
pub(super) fn too_long(ids: &Tensor, context: usize, width: usize) -> Tensor {
    let (b, s) = (ids.dim(0), ids.dim(1));
    let message =
        format!("a sequence of {s} tokens is longer than the position table, which has {context} rows");
    ids.mistake(message, [b, s, width])
}
