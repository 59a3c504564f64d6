//! A stream of tokens, and windows of it for training language models.

use std::sync::Arc;

use super::{Batch, Dataset};
use crate::error::{Error, Result};

/// A sequence of token ids, each below the size of their vocabulary. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    ids: Arc<[u32]>,
    vocabulary: usize,
}

/// All windows of `seq` tokens of a stream: sample `i` begins at token `i`. Inputs `x [samples, seq]` and
/// `y [samples · seq]`, the token after each of `x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWindows {
    tokens: Tokens,
    seq: usize,
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

    /// Returns the windows of `seq` tokens. There are as many as positions at which one can begin: for random
    /// windows, shuffle a loader and limit its epochs ([`Loader::batches_per_epoch`](super::Loader)).
    ///
    /// # Errors
    /// [`Error::Data`] for fewer than `seq + 1` tokens, or a window of 0.
    pub fn windows(&self, seq: usize) -> Result<TokenWindows> {
        if seq == 0 || self.ids.len() <= seq {
            let message = format!(
                "{} tokens are too few for a window of {seq} and the token after it, or the window is empty",
                self.ids.len()
            );
            return Err(Error::Data { what: "tokens".to_owned(), message });
        }
        Ok(TokenWindows { tokens: self.clone(), seq })
    }
}

impl Dataset for TokenWindows {
    fn len(&self) -> usize {
        self.tokens.ids.len() - self.seq
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        let windows = |shift: usize| -> Vec<u32> {
            let window = |&start: &usize| &self.tokens.ids[start + shift..start + shift + self.seq];
            samples.iter().flat_map(window).copied().collect()
        };
        Ok(Batch::new(samples.len()).with("x", windows(0)).with("y", windows(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(n: u32) -> Tokens {
        Tokens::new((0..n).collect::<Vec<_>>(), n as usize).unwrap()
    }

    #[test]
    fn labels_are_the_next_tokens_of_every_window() {
        let windows = stream(10).windows(5).unwrap();
        assert_eq!(windows.len(), 5);
        let batch = windows.batch(&[4, 0]).unwrap();
        assert_eq!(batch.u32("x"), [4, 5, 6, 7, 8, 0, 1, 2, 3, 4]);
        assert_eq!(batch.u32("y"), [5, 6, 7, 8, 9, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn invalid_windows_and_tokens_are_errors() {
        assert!(stream(5).windows(5).unwrap_err().to_string().contains("5 tokens are too few"));
        assert!(stream(6).windows(5).is_ok());
        assert!(matches!(stream(6).windows(0), Err(Error::Data { .. })));
        let error = Tokens::new(vec![0, 3, 1], 3).unwrap_err().to_string();
        assert_eq!(error, "tokens: token 1 is 3, the vocabulary has 3");
    }

    #[test]
    fn a_split_keeps_the_order() {
        let (a, b) = stream(10).split(0.7);
        assert_eq!((a.ids(), b.ids()), (&[0, 1, 2, 3, 4, 5, 6][..], &[7, 8, 9][..]));
    }
}
