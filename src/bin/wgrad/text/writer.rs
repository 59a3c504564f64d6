//! Text from a language model, token by token.

use wgrad::exec::Sampling;
use wgrad::{Error, Result};

use super::Language;

/// Options of generated text; shared by `generate` and `finetune`.
#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Most tokens to write.
    #[arg(long, value_name = "TOKENS", default_value_t = 100)]
    pub length: usize,
    /// 0 takes the most likely token, 1 draws by the model's probabilities.
    #[arg(long, default_value_t = 0.8)]
    temperature: f32,
    /// Draw from this many of the most likely tokens; 0 for all.
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    top_k: usize,
    /// Draw from the most likely tokens that reach this probability together.
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.95)]
    top_p: f32,
    /// Above 1, tokens that are there already become less likely.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    repetition: f32,
    /// Decides what is drawn; when training, also the order of the data and how adapters begin.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl Options {
    fn sampling(&self) -> Sampling {
        let Self { temperature, top_k, top_p, repetition, seed, .. } = *self;
        Sampling { temperature, top_k, top_p, repetition, seed }
    }

    /// Refuses numbers that are out of their ranges.
    pub fn check(&self) -> Result<()> {
        self.sampling().draw(&[0.0], &[]).map(drop)
    }

    /// Writes the tokens after `text`, up to one that ends a text, each as `next` draws it
    /// until it draws none; tells `show` each piece of new text.
    pub fn write(
        &self,
        language: &Language,
        mut text: Vec<u32>,
        mut next: impl FnMut(&[u32], &Sampling) -> Result<Option<u32>>,
        mut show: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        let (length, sampling) = (self.length, self.sampling());
        if text.is_empty() {
            let message = "an empty prompt: there is no token that begins a text; give --prompt";
            return Err(Error::setting("command line", message));
        }
        let mut shown = language.decode(&text)?.len();
        for left in (0..length).rev() {
            let Some(id) = next(&text, &sampling)?.filter(|id| !language.ends(*id)) else { break };
            text.push(id);
            let all = language.decode(&text)?;
            // A character can be several tokens.
            if let Some(new) = all.get(shown..).filter(|new| left == 0 || !new.ends_with('\u{fffd}')) {
                show(new)?;
                shown = all.len();
            }
        }
        Ok(())
    }
}
