//! A stream of tokens, and windows of it for training language models.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::token_file::{Shards, TokenFormat, files_of};
use super::{Batch, Dataset};
use crate::error::{Error, Result};

/// A sequence of token ids, each below the size of their vocabulary, in memory or in files. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokens {
    source: Source,
    /// The part of the source.
    range: Range<usize>,
    vocabulary: usize,
}

#[derive(Clone, Debug)]
enum Source {
    Memory(Arc<[u32]>),
    Files(Arc<Shards>),
}

/// All windows of `seq` tokens of a stream: sample `i` begins at token `i`. Inputs `x [samples, seq]` and
/// `y [samples · seq]`, the token after each of `x`.
#[derive(Clone, Debug)]
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
        check("tokens", 0, &ids, vocabulary)?;
        Ok(Self { range: 0..ids.len(), source: Source::Memory(ids), vocabulary })
    }

    /// Opens a file of ids, such as nanoGPT's and llm.c's scripts write; or all files of a folder, or those that match a
    /// name with one `*`, such as `data/fineweb_train_*.bin`, one after the other in the order of their names. What a batch
    /// needs is read from them: they may be larger than memory. They are not to change meanwhile.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use wgrad::data::{Loader, TokenFormat, Tokens};
    ///
    /// let tokens = Tokens::open("train.bin", TokenFormat::U16, 50_257)?;
    /// // A thousand steps of 8 windows in an epoch, drawn by the seed.
    /// let loader = Loader::new(Arc::new(tokens.windows(1024)?), 8)?.shuffled(0).batches_per_epoch(1000);
    /// # Ok::<(), wgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Data`] for a folder without files, for a file that cannot be opened, that does not end with a whole id, or
    /// whose header is not that of `format`. Ids that are not below `vocabulary` are found when they are read.
    pub fn open(path: impl AsRef<Path>, format: TokenFormat, vocabulary: usize) -> Result<Self> {
        Self::open_shards(&files_of(path.as_ref())?, format, vocabulary)
    }

    /// Opens files of ids as one stream, in this order: windows reach from one into the next.
    ///
    /// # Errors
    /// Those of [`Tokens::open`].
    pub fn open_shards<P: AsRef<Path>>(paths: &[P], format: TokenFormat, vocabulary: usize) -> Result<Self> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
        let shards = Shards::open(&paths, format)?;
        Ok(Self { range: 0..shards.len(), source: Source::Files(Arc::new(shards)), vocabulary })
    }

    /// Returns the ids of a part of the stream, in order.
    ///
    /// # Errors
    /// [`Error::Data`] for a part that the stream does not have; for tokens in a file, if it cannot be read or
    /// has an id that is not below the vocabulary.
    pub fn read(&self, part: Range<usize>) -> Result<Vec<u32>> {
        if part.start > part.end || part.end > self.len() {
            let message = format!("there are no tokens {part:?}, there are {}", self.len());
            return Err(Error::Data { what: "tokens".to_owned(), message });
        }
        let part = self.range.start + part.start..self.range.start + part.end;
        match &self.source {
            Source::Memory(ids) => Ok(ids[part].to_vec()),
            Source::Files(files) => {
                files.read(part, |name, first, ids| check(name, first, ids, self.vocabulary))
            }
        }
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Splits into two streams: the first `share` of the tokens, and the rest.
    pub fn split(&self, share: f64) -> (Self, Self) {
        let Range { start, end } = self.range;
        let cut = start + ((self.len() as f64 * share).round() as usize).min(self.len());
        let part = |range| Self { range, ..self.clone() };
        (part(start..cut), part(cut..end))
    }

    /// Returns the windows of `seq` tokens. There are as many as positions at which one can begin: for random
    /// windows, shuffle a loader and limit its epochs ([`Loader::batches_per_epoch`](super::Loader)).
    ///
    /// # Errors
    /// [`Error::Data`] for fewer than `seq + 1` tokens, or a window of 0.
    pub fn windows(&self, seq: usize) -> Result<TokenWindows> {
        if seq == 0 || self.len() <= seq {
            let message = format!(
                "{} tokens are too few for a window of {seq} and the token after it, or the window is empty",
                self.len()
            );
            return Err(Error::Data { what: "tokens".to_owned(), message });
        }
        Ok(TokenWindows { tokens: self.clone(), seq })
    }
}

/// Checks ids of which the first is token number `first`.
fn check(what: &str, first: usize, ids: &[u32], vocabulary: usize) -> Result<()> {
    let Some(at) = ids.iter().position(|&id| id as usize >= vocabulary) else { return Ok(()) };
    let message = format!("token {} is {}, the vocabulary has {vocabulary}", first + at, ids[at]);
    Err(Error::Data { what: what.to_owned(), message })
}

impl Dataset for TokenWindows {
    fn len(&self) -> usize {
        self.tokens.len() - self.seq
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for &start in samples {
            let window = self.tokens.read(start..start + self.seq + 1)?;
            x.extend_from_slice(&window[..self.seq]);
            y.extend_from_slice(&window[1..]);
        }
        Ok(Batch::new(samples.len()).with("x", x).with("y", y))
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
        assert_eq!(
            (a.read(0..7).unwrap(), b.read(0..3).unwrap()),
            (vec![0, 1, 2, 3, 4, 5, 6], vec![7, 8, 9])
        );
        let error = b.read(1..4).unwrap_err().to_string();
        assert_eq!(error, "tokens: there are no tokens 1..4, there are 3");
    }
}
