//! A stream of tokens, and windows of it for training language models.

use std::sync::Arc;

use super::Prefetch;
use crate::error::{Error, Result};
use crate::random;

/// A sequence of token ids, each below the size of their vocabulary. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    ids: Arc<[u32]>,
    vocabulary: usize,
}

/// Windows of a stream, and the token after each of their tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenBatch {
    /// `[batch, seq]`, row-major
    pub x: Vec<u32>,
    /// `[batch, seq]`: the token after each of `x`
    pub y: Vec<u32>,
}

/// Which windows of a stream make a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Windows in a batch.
    pub batch: usize,
    /// Tokens in a window.
    pub seq: usize,
    /// Seed that determines which windows are drawn.
    pub seed: u64,
}

impl Tokens {
    /// Creates a stream over a vocabulary.
    ///
    /// # Errors
    /// [`Error::Data`] for an id that is not below `vocabulary`.
    pub fn new(ids: impl Into<Arc<[u32]>>, vocabulary: usize) -> Result<Self> {
        let ids = ids.into();
        if let Some(at) = ids.iter().position(|&id| id as usize >= vocabulary) {
            let message = format!("token {at} is {}, the vocabulary has {vocabulary}", ids[at]);
            return Err(Error::Data { what: "tokens".to_owned(), message });
        }
        Ok(Self { ids, vocabulary })
    }

    /// Returns the ids, in order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Splits into two streams: the first `share` of the tokens, and the rest.
    pub fn split(&self, share: f64) -> (Self, Self) {
        let cut = ((self.ids.len() as f64 * share).round() as usize).min(self.ids.len());
        let part = |ids: &[u32]| Self { ids: ids.into(), ..*self };
        (part(&self.ids[..cut]), part(&self.ids[cut..]))
    }

    /// Returns batches of windows that begin at random positions, without end. Batch `step` depends on the
    /// seed and `step` alone, so a run that is resumed after `first` steps sees the batches that it would
    /// have seen. A thread prepares the next ones.
    ///
    /// # Errors
    /// [`Error::Data`] for fewer than `seq + 1` tokens; [`Error::Option`] for a batch or a window of 0.
    pub fn windows(&self, windows: Windows, first: u64) -> Result<Prefetch<TokenBatch>> {
        self.check(windows)?;
        let tokens = self.clone();
        Ok(Prefetch::new((first..).map(move |step| tokens.batch(windows, step))))
    }

    fn check(&self, Windows { batch, seq, .. }: Windows) -> Result<()> {
        if batch == 0 || seq == 0 {
            return Err(Error::Option(format!(
                "a batch of {batch} windows of {seq} tokens: both must be at least 1"
            )));
        }
        if self.ids.len() <= seq {
            let message = format!(
                "{} tokens are too few for a window of {seq} and the token behind it",
                self.ids.len()
            );
            return Err(Error::Data { what: "tokens".to_owned(), message });
        }
        Ok(())
    }

    fn batch(&self, Windows { batch, seq, seed }: Windows, step: u64) -> TokenBatch {
        let key = random::key(seed, "windows");
        let starts = (self.ids.len() - seq) as u64;
        let mut result = TokenBatch::default();
        for row in 0..batch as u64 {
            let start =
                (random::bits(key, step.wrapping_mul(batch as u64).wrapping_add(row)) % starts) as usize;
            result.x.extend_from_slice(&self.ids[start..start + seq]);
            result.y.extend_from_slice(&self.ids[start + 1..=start + seq]);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows { batch: 3, seq: 5, seed: 7 };

    fn stream(n: u32) -> Tokens {
        Tokens::new((0..n).collect::<Vec<_>>(), n as usize).unwrap()
    }

    #[test]
    fn labels_are_the_next_tokens_and_every_start_is_drawn() {
        let mut starts = std::collections::BTreeSet::new();
        for batch in stream(10).windows(WINDOWS, 0).unwrap().take(40) {
            assert_eq!((batch.x.len(), batch.y.len()), (15, 15));
            for (x, y) in batch.x.chunks(5).zip(batch.y.chunks(5)) {
                assert!(x.iter().zip(y).all(|(x, y)| y - x == 1) && x.windows(2).all(|w| w[1] - w[0] == 1));
                starts.insert(x[0]);
            }
        }
        assert!(starts.into_iter().eq(0..5));
    }

    #[test]
    fn resumed_run_draws_the_same_batches() {
        let take = |seed, first, n| -> Vec<TokenBatch> {
            stream(100).windows(Windows { seed, ..WINDOWS }, first).unwrap().take(n).collect()
        };
        assert_eq!(take(1, 0, 6)[4..], take(1, 4, 2));
        assert_ne!(take(1, 0, 2), take(2, 0, 2));
    }

    #[test]
    fn invalid_windows_and_tokens_are_errors() {
        assert!(stream(5).windows(WINDOWS, 0).err().unwrap().to_string().contains("5 tokens are too few"));
        assert!(stream(6).windows(WINDOWS, 0).is_ok());
        assert!(matches!(stream(6).windows(Windows { seq: 0, ..WINDOWS }, 0), Err(Error::Option(_))));
        let error = Tokens::new(vec![0, 3, 1], 3).unwrap_err().to_string();
        assert_eq!(error, "tokens: token 1 is 3, the vocabulary has 3");
    }

    #[test]
    fn a_split_keeps_the_order() {
        let (a, b) = stream(10).split(0.7);
        assert_eq!((a.ids(), b.ids()), (&[0, 1, 2, 3, 4, 5, 6][..], &[7, 8, 9][..]));
    }
}
