//! Networks over token ids.

use super::bert::{Bert, BertConfig};
use super::gpt::{Gpt, GptConfig};
use super::llama::{Llama, LlamaConfig};
use crate::error::Result;
use crate::graph::{Params, Tensor};

/// A network over sequences of token ids.
pub trait Sequence {
    /// Logits `[.., vocabulary]` of `ids`, `u32 [b, s]`.
    fn logits(&self, ids: &Tensor) -> Tensor;

    /// The mean cross-entropy with `labels`, one for each row of logits. Logits need not be in memory together.
    fn loss(&self, ids: &Tensor, labels: &Tensor) -> Tensor;
}

/// The names that [`named`] knows.
pub(super) const NAMES: [&str; 5] = ["gpt-nano", "gpt2", "gpt2-medium", "llama-tiny", "bert-base"];

/// A network with what a batch for it looks like.
pub(super) struct Named {
    pub name: &'static str,
    /// Tokens in a sequence.
    pub seq: usize,
    pub vocabulary: usize,
    /// Labels of a sequence.
    pub labels: usize,
    pub network: Box<dyn Sequence>,
}

/// A network by name, for sequences of `seq` tokens or as many as in its paper; `None` for a name of none.
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

/// Stands for the hidden vectors of sequences that the position table does not reach.
#[track_caller]
pub(super) fn too_long(ids: &Tensor, context: usize, width: usize) -> Tensor {
    let (b, s) = (ids.dim(0), ids.dim(1));
    let message =
        format!("a sequence of {s} tokens is longer than the position table, which has {context} rows");
    ids.mistake(message, [b, s, width])
}
