//! The next token of a text, drawn from the logits of a network.

use std::collections::BTreeSet;

use super::{ProgramId, Session};
use crate::error::{Error, Result};
use crate::maybe_async;
use crate::random;

/// How a token is drawn from the logits of a network.
///
/// The logits of tokens that are there already are divided by `repetition` if they are positive and multiplied if not
/// (Keskar et al. 2019), and all are divided by `temperature`. Of the `top_k` most likely tokens, the fewest whose
/// probabilities reach `top_p` together (Holtzman et al. 2020) stay; one of them is drawn by its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token, 1 draws by the network's probabilities.
    pub temperature: f32,
    /// The number of tokens that can be drawn; 0 for all.
    pub top_k: usize,
    /// The probability of those that can be drawn, above 0; 1 for all.
    pub top_p: f32,
    /// Above 1, tokens that are there already become less likely; 1 changes nothing.
    pub repetition: f32,
    /// Decides what is drawn.
    pub seed: u64,
}

impl Default for Sampling {
    /// Draws by the network's probabilities, with seed 0.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, repetition: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Returns an index of `logits` for the token after `before`, the tokens of the text so far. The number of them selects
    /// the random number, so the same text and seed give the same token.
    ///
    /// # Errors
    /// [`Error::Setting`] for a number that is out of its range; [`Error::NotFinite`] for logits that are NaN, or infinite.
    pub fn draw(&self, logits: &[f32], before: &[u32]) -> Result<u32> {
        self.check()?;
        if let Some((index, value)) = logits.iter().enumerate().find(|(_, x)| !x.is_finite()) {
            let index = index as u64;
            let (what, help) = ("logits".to_owned(), "the network's parameters or inputs are not finite");
            return Err(Error::NotFinite { what, index, value: *value, help });
        }
        let mut logits: Vec<f32> = logits.to_vec();
        let seen = before.iter().filter(|_| self.repetition != 1.0).collect::<BTreeSet<_>>();
        for id in seen {
            if let Some(x) = logits.get_mut(*id as usize) {
                *x = if *x > 0.0 { *x / self.repetition } else { *x * self.repetition };
            }
        }
        // Equal logits in the order of their indices.
        let by_logit = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
        let Some(first) = (0..logits.len()).min_by(by_logit) else {
            return Err(Error::setting("logits", "no logits: there is no token to draw"));
        };
        if self.temperature == 0.0 {
            return Ok(first as u32);
        }
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(by_logit);
        if self.top_k > 0 {
            order.truncate(self.top_k);
        }
        let temperature = f64::from(self.temperature);
        let weight = |i: &usize| (f64::from(logits[*i] - logits[first]) / temperature).exp();
        let weights: Vec<f64> = order.iter().map(weight).collect();
        let reach = f64::from(self.top_p) * weights.iter().sum::<f64>();
        let mut kept = 0.0;
        let enough = weights.iter().position(|weight| {
            kept += weight;
            kept >= reach
        });
        let count = enough.map_or(weights.len(), |last| last + 1);
        let number = random::uniform(random::key(self.seed, "sampling"), before.len() as u64);
        let mut left = f64::from(number) * weights[..count].iter().sum::<f64>();
        let drawn = weights[..count].iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        Ok(order[drawn.unwrap_or(count - 1)] as u32)
    }

    fn check(&self) -> Result<()> {
        let Self { temperature, top_p, repetition, .. } = *self;
        let wrong = |name: &str, message: String| Err(Error::setting(name, message));
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return wrong("temperature", format!("a temperature of {temperature}: it must be 0 or more"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return wrong("top_p", format!("a top_p of {top_p}: it must be above 0 and at most 1"));
        }
        if !(repetition > 0.0 && repetition.is_finite()) {
            return wrong("repetition", format!("a repetition of {repetition}: it must be above 0"));
        }
        Ok(())
    }
}

impl Session {
    /// Draws the token after `text`: runs a program with inputs `x`, `u32 [1, n]`, and `at`, `u32 [1]`, and one output, the
    /// logits of the token after position `at` ([`Model::next_logits`](crate::models::Model::next_logits)). The network sees the
    /// last `n` tokens; the whole window is computed for each token.
    ///
    /// # Errors
    /// [`Error::Setting`] for an empty text and for a program of other inputs; as [`Session::run`] and [`Sampling::draw`].
    #[maybe_async]
    pub async fn next_token(&mut self, program: ProgramId, text: &[u32], sampling: &Sampling) -> Result<u32> {
        let graph = self.plan(program)?.graph();
        let window = graph.inputs().find(|(_, value)| value.name == "x").map(|(_, value)| value.shape.last());
        let (Some(window), [(output, _)]) = (window, &graph.outputs[..]) else {
            return Err(Error::setting(
                "program",
                "it predicts no token: it needs an input `x` and one output",
            ));
        };
        let output = output.clone();
        let seen = &text[text.len().saturating_sub(window)..];
        let Some(last) = seen.len().checked_sub(1) else {
            return Err(Error::setting("text", "an empty text: it must have a token at least"));
        };
        let mut padded = seen.to_vec();
        padded.resize(window, 0);
        self.feed_to(program, "x", &padded).await?;
        self.feed_to(program, "at", &[last as u32]).await?;
        self.run(program).await?;
        let logits = self.output::<f32>(program, &output).await?;
        sampling.draw(&logits, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sampling: Sampling, logits: &[f32]) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for seed in 0..2000 {
            let sampling = Sampling { seed, ..sampling };
            counts[sampling.draw(logits, &[]).expect("a token") as usize] += 1;
        }
        counts
    }

    #[test]
    fn tokens_are_drawn_by_their_probabilities() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()];
        let counts = drawn(Sampling::default(), &logits);
        for (count, share) in counts.iter().zip([0.5, 0.3, 0.2]) {
            assert!((*count as f64 / 2000.0 - share).abs() < 0.03, "{counts:?}");
        }
        // In squares: 25 to 9 to 4.
        let counts = drawn(Sampling { temperature: 0.5, ..Sampling::default() }, &logits);
        assert!((counts[0] as f64 / 2000.0 - 25.0 / 38.0).abs() < 0.03, "{counts:?}");
        assert_eq!(drawn(Sampling { temperature: 0.0, ..Sampling::default() }, &logits), [2000, 0, 0]);
    }

    #[test]
    fn unlikely_tokens_are_left_out_and_repeated_ones_less_likely() {
        let logits = [0.2f32.ln(), 0.5f32.ln(), 0.3f32.ln()];
        let of = |top_k, top_p| drawn(Sampling { top_k, top_p, ..Sampling::default() }, &logits);
        assert_eq!(of(1, 1.0), [0, 2000, 0]);
        assert_eq!(of(2, 1.0)[0], 0);
        assert_eq!(of(0, 0.45), [0, 2000, 0]);
        assert_eq!(of(0, 0.7)[0], 0);
        assert!(of(0, 0.7)[2] > 500);
        assert!(of(0, 1.0)[0] > 300);
        let greedy = Sampling { temperature: 0.0, repetition: 2.0, ..Sampling::default() };
        assert_eq!(greedy.draw(&[1.0, 3.0, 2.0], &[1]).expect("a token"), 2);
        assert_eq!(greedy.draw(&[-1.0, -0.6, -2.0], &[1]).expect("a token"), 0);
    }

    #[test]
    fn numbers_out_of_range_and_bad_logits_are_errors() {
        let error =
            |sampling: Sampling, logits: &[f32]| sampling.draw(logits, &[]).expect_err("refused").to_string();
        let default = Sampling::default();
        assert!(error(Sampling { temperature: -1.0, ..default }, &[1.0]).contains("temperature of -1"));
        assert!(error(Sampling { top_p: 0.0, ..default }, &[1.0]).contains("top_p of 0"));
        assert!(error(Sampling { repetition: f32::NAN, ..default }, &[1.0]).contains("repetition of NaN"));
        assert!(error(default, &[1.0, f32::NAN]).contains("NaN"));
        assert!(error(default, &[]).contains("no logits"));
    }
}
