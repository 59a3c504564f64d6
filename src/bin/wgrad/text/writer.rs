//! Text from a language model, token by token.

use wgrad::exec::Sampling;
use wgrad::{Error, Result};

use super::Language;

/// A text that is written.
struct Writing {
    tokens: Vec<u32>,
    sampling: Sampling,
    /// Tokens that may be written yet.
    left: usize,
    /// Bytes of it that were shown.
    shown: usize,
}

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

    /// Writes the tokens after each of `texts`, up to one that ends a text and to `room` tokens in all, as `next` draws them for
    /// those that are not at their end. Calls `show` with each piece of new text and the number of its text, and with `None` at
    /// its end. The first text is drawn with the seed, each other with that of the one before it plus 1.
    pub fn write(
        &self,
        language: &Language,
        texts: &[Vec<u32>],
        room: usize,
        mut next: impl FnMut(&[(&[u32], &Sampling)]) -> Result<Vec<u32>>,
        mut show: impl FnMut(usize, Option<&str>) -> Result<()>,
    ) -> Result<()> {
        if texts.iter().any(Vec::is_empty) {
            let message = "an empty prompt: there is no token that begins a text; give --prompt";
            return Err(Error::setting("command line", message));
        }
        let writing = |(i, text): (usize, &Vec<u32>)| {
            let seed = self.seed.wrapping_add(i as u64);
            let (tokens, sampling) = (text.clone(), Sampling { seed, ..self.sampling() });
            // With all of `room` in use, one token more can be drawn.
            let left = self.length.min(room.saturating_add(1).saturating_sub(text.len()).max(1));
            Ok((i, Writing { shown: language.decode(text)?.len(), tokens, sampling, left }))
        };
        let mut active = texts.iter().enumerate().map(writing).collect::<Result<Vec<_>>>()?;
        loop {
            let ended = active.iter().filter(|(_, text)| text.left == 0).map(|(i, _)| *i);
            ended.clone().try_for_each(|i| show(i, None))?;
            active.retain(|(_, text)| text.left > 0);
            if active.is_empty() {
                return Ok(());
            }
            let seen = active.iter().map(|(_, text)| (&text.tokens[..], &text.sampling)).collect::<Vec<_>>();
            let drawn = next(&seen)?;
            for ((i, text), id) in active.iter_mut().zip(drawn) {
                if language.ends(id) {
                    text.left = 0;
                    continue;
                }
                text.tokens.push(id);
                text.left -= 1;
                let all = language.decode(&text.tokens)?;
                // A character can be several tokens.
                let whole = |new: &&str| text.left == 0 || !new.ends_with('\u{fffd}');
                if let Some(new) = all.get(text.shown..).filter(whole) {
                    show(*i, Some(new))?;
                    text.shown = all.len();
                }
            }
        }
    }
}
