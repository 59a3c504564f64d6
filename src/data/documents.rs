//! Documents of different lengths, as rows of tokens for language models.

use std::ops::Range;

use super::{Batch, Dataset};
use crate::error::{Error, Result};

/// Documents of tokens in rows of `seq`: a document begins a row, and one that is longer goes on in the next rows, unless they
/// are [`packed`](Documents::packed). Inputs
/// `x [samples, seq]` and `y [samples · seq]`, the token after each of `x`, or [`IGNORE`](crate::graph::IGNORE) where there is
/// none or where it is not to be learnt, such as in the question to an assistant. `x` is 0 after the end of a document; where
/// attention is causal that changes nothing. Packed rows have `documents [samples, seq, 2]` too, where the document of each
/// token starts in its row and where it ends, for [`Tensor::attention_within`](crate::graph::Tensor::attention_within).
#[derive(Clone, Debug)]
pub struct Documents {
    seq: usize,
    vocabulary: usize,
    /// Of all documents, one after the other.
    tokens: Vec<u32>,
    /// Whether the network is to learn to predict the token.
    learnt: Vec<bool>,
    /// Where documents start, and the end of the last one.
    starts: Vec<usize>,
    rows: Vec<Range<usize>>,
    packed: bool,
}

impl Documents {
    /// A label that counts nothing: [`IGNORE`](crate::graph::IGNORE). Data sets know no graphs; a test compares the two.
    const IGNORE: u32 = u32::MAX;

    /// Creates an empty set of rows of `seq` tokens below `vocabulary`.
    ///
    /// # Errors
    /// [`Error::Setting`] for rows of 0 tokens.
    pub fn new(seq: usize, vocabulary: usize) -> Result<Self> {
        if seq == 0 {
            return Err(Error::setting("seq", "rows of 0 tokens: it must be at least 1"));
        }
        let (tokens, learnt, rows) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { seq, vocabulary, tokens, learnt, starts: vec![0], rows, packed: false })
    }

    /// Adds a document, all of whose tokens but the first are to be learnt. `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::Data`] for a token that is not below the vocabulary.
    pub fn push(&mut self, what: &str, tokens: &[u32]) -> Result<()> {
        self.push_parts(what, tokens, &vec![true; tokens.len()])
    }

    /// Adds a document of which the tokens with `true` are to be learnt. A row without any is left out.
    ///
    /// # Errors
    /// [`Error::Data`] for a token that is not below the vocabulary, and for lists of different lengths.
    pub fn push_parts(&mut self, what: &str, tokens: &[u32], learnt: &[bool]) -> Result<()> {
        let failed = |message: String| Error::Data { what: what.to_owned(), message };
        if tokens.len() != learnt.len() {
            return Err(failed(format!(
                "{} tokens, {} say whether to learn them",
                tokens.len(),
                learnt.len()
            )));
        }
        if let Some(at) = tokens.iter().position(|&id| id as usize >= self.vocabulary) {
            let (id, most) = (tokens[at], self.vocabulary);
            return Err(failed(format!("token {at} is {id}, the model's vocabulary has {most}")));
        }
        let start = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.learnt.extend_from_slice(learnt);
        // No token predicts the first one of a document.
        if let Some(first) = self.learnt.get_mut(start) {
            *first = false;
        }
        self.starts.push(self.tokens.len());
        let first = if self.packed { start.saturating_sub(1) / self.seq * self.seq } else { start };
        self.rows.truncate(self.rows.partition_point(|row| row.start < first));
        self.add_rows(first);
        Ok(())
    }

    /// Returns the same documents one after the other, so that all rows but the last are full: documents begin within rows.
    /// A network that takes `documents` ([`Model::of_documents`](crate::models::Model::of_documents)) lets no token see another
    /// document.
    #[must_use]
    pub fn packed(mut self) -> Self {
        self.packed = true;
        self.rows.clear();
        self.add_rows(0);
        self
    }

    /// Cuts the tokens from `start` on into rows.
    fn add_rows(&mut self, start: usize) {
        let end = self.tokens.len();
        // A row has one token more than it predicts from; the next row begins with it.
        for first in (start..end.saturating_sub(1)).step_by(self.seq) {
            let row = first..end.min(first + self.seq + 1);
            if self.learnt[row.start + 1..row.end].contains(&true) {
                self.rows.push(row);
            }
        }
    }

    /// Returns the number of tokens of all documents.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the number of tokens that are learnt in one epoch.
    pub fn learnt(&self) -> usize {
        self.rows.iter().map(|row| self.labels(row).filter(|label| *label != Self::IGNORE).count()).sum()
    }

    /// Returns the share of the rows that holds tokens; the rest is after the ends of documents. 0 without rows.
    pub fn filled(&self) -> f64 {
        let held: usize = self.rows.iter().map(|row| row.len() - 1).sum();
        held as f64 / (self.rows.len() * self.seq).max(1) as f64
    }

    /// Returns where the document of each token of a row starts and where it ends, from the row's first token. What is after the
    /// last document counts as one.
    fn ends(&self, row: &Range<usize>) -> Vec<u32> {
        let mut ends = Vec::with_capacity(2 * self.seq);
        let last = row.end - 1;
        let mut next = self.starts.partition_point(|start| *start <= row.start);
        let mut start = row.start;
        while start < last {
            let end = self.starts[next].min(last);
            let both = [start - row.start, end - row.start].map(|at| at as u32);
            ends.extend((start..end).flat_map(|_| both));
            (start, next) = (end, next + 1);
        }
        let rest = [ends.len() / 2, self.seq].map(|at| at as u32);
        ends.extend((ends.len() / 2..self.seq).flat_map(|_| rest));
        ends
    }

    fn labels(&self, row: &Range<usize>) -> impl Iterator<Item = u32> {
        (row.start + 1..row.end).map(|i| if self.learnt[i] { self.tokens[i] } else { Self::IGNORE })
    }
}

impl Dataset for Documents {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn batch(&self, samples: &[usize]) -> Result<Batch> {
        let (mut x, mut y, mut documents) = (Vec::new(), Vec::new(), Vec::new());
        for (i, &sample) in samples.iter().enumerate() {
            let row = &self.rows[sample];
            x.extend_from_slice(&self.tokens[row.start..row.end - 1]);
            y.extend(self.labels(row));
            x.resize((i + 1) * self.seq, 0);
            y.resize((i + 1) * self.seq, Self::IGNORE);
            if self.packed {
                documents.extend(self.ends(row));
            }
        }
        let batch = Batch::new(samples.len()).with("x", x).with("y", y);
        Ok(if self.packed { batch.with("documents", documents) } else { batch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::IGNORE;

    #[test]
    fn documents_begin_rows_and_end_in_ignored_labels() {
        assert_eq!(Documents::IGNORE, IGNORE);
        let mut documents = Documents::new(3, 100).unwrap();
        documents.push("a", &[1, 2, 3, 4, 5]).unwrap();
        documents.push("b", &[7]).unwrap();
        documents.push_parts("c", &[10, 11, 12], &[false, false, true]).unwrap();
        assert_eq!((documents.len(), documents.tokens(), documents.learnt()), (3, 9, 5));
        assert_eq!(documents.filled(), 6.0 / 9.0);
        let batch = documents.batch(&[0, 1, 2]).unwrap();
        assert_eq!(batch.u32("x"), [1, 2, 3, 4, 0, 0, 10, 11, 0]);
        assert_eq!(batch.u32("y"), [2, 3, 4, 5, IGNORE, IGNORE, IGNORE, 12, IGNORE]);
        let packed = documents.packed();
        let batch = packed.batch(&[0, 1, 2]).unwrap();
        assert_eq!(batch.u32("x"), [1, 2, 3, 4, 5, 7, 10, 11, 0]);
        // No document predicts the first token of the next one.
        assert_eq!(batch.u32("y"), [2, 3, 4, 5, IGNORE, IGNORE, IGNORE, 12, IGNORE]);
        let ends = [[0, 3, 0, 3, 0, 3], [0, 2, 0, 2, 2, 3], [0, 2, 0, 2, 2, 3]];
        assert_eq!(batch.u32("documents"), ends.concat());
        assert_eq!((packed.len(), packed.filled()), (3, 8.0 / 9.0));
        // A document that comes later goes on in the last row.
        let mut later = Documents::new(3, 100).unwrap().packed();
        later.push("a", &[1, 2, 3, 4, 5]).unwrap();
        later.push("b", &[7]).unwrap();
        later.push_parts("c", &[10, 11, 12], &[false, false, true]).unwrap();
        assert_eq!(later.rows, packed.rows);
    }

    #[test]
    fn rows_without_anything_to_learn_are_left_out() {
        let mut documents = Documents::new(2, 100).unwrap();
        documents.push_parts("a", &[1, 2, 3, 4, 5], &[false, false, false, true, true]).unwrap();
        assert_eq!(documents.batch(&[0]).unwrap().u32("y"), [4, 5]);
        assert_eq!(documents.len(), 1);
    }

    #[test]
    fn unknown_tokens_and_lists_that_differ_are_errors() {
        let mut documents = Documents::new(2, 5).unwrap();
        let error = documents.push("line 3", &[1, 5]).unwrap_err().to_string();
        assert_eq!(error, "line 3: token 1 is 5, the model's vocabulary has 5");
        assert!(documents.push_parts("a", &[1], &[]).unwrap_err().to_string().contains("1 tokens, 0 say"));
        assert!(Documents::new(0, 5).is_err());
        assert!(documents.is_empty() && documents.filled() == 0.0);
    }
}
