//! The tokens of a batch in parts, in which a block of a transformer is computed one after another: what it has of one part is
//! freed before the next, in the backward pass too.

use std::ops::Range;

use crate::dtype::DType;
use crate::graph::Tensor;

/// Consecutive tokens of a batch `[b, s]`: of several samples from their start to their end, or some of one sample.
pub(super) struct Part {
    /// The tokens, where those of a sample come after those of the sample before.
    rows: Range<usize>,
    /// Tokens of each sample.
    tokens: usize,
    /// Position of the first token in its sample.
    pub first: usize,
    /// Positions of all tokens in their samples, `u32 [samples, tokens]`, if the first is not 0.
    pub positions: Option<Tensor>,
}

impl Part {
    /// Divides `ids [b, s]` into parts of at most `rows` tokens: the parts of one or several whole samples, in order.
    #[track_caller]
    pub(super) fn all(ids: &Tensor, rows: usize) -> Vec<Vec<Self>> {
        let [b, s] = [ids.dim(0), ids.dim(1).max(1)];
        let samples = (rows / s).max(1);
        let part = |sample: usize, start: usize| {
            let (count, tokens) = (samples.min(b - sample), rows.min(s - start));
            let places = || ids.indices_like([count, tokens], 1).offset(start as f32).cast(DType::U32);
            let first = sample * s + start;
            let rows = first..first + count * tokens;
            Self { rows, tokens, first: start, positions: (start > 0).then(places) }
        };
        let of_samples =
            |sample: usize| (0..s).step_by(rows.min(s)).map(|start| part(sample, start)).collect();
        (0..b).step_by(samples).map(of_samples).collect()
    }

    /// Position after the last token in its sample.
    pub(super) fn end(&self) -> usize {
        self.first + self.tokens
    }

    /// The part of all tokens, `x [b s, width]`: `[samples, tokens, width]`.
    #[track_caller]
    fn of(&self, x: &Tensor) -> Tensor {
        let rows = if self.rows.len() == x.dim(0) { x.clone() } else { x.slice(0, self.rows.clone()) };
        rows.reshape([self.rows.len() / self.tokens, self.tokens, x.dim(1)])
    }
}

/// The parts of all tokens, `x [b s, width]`.
#[track_caller]
pub(super) fn split(x: &Tensor, parts: &[Vec<Part>]) -> Vec<Vec<Tensor>> {
    rows_of_one(parts.iter().map(|parts| parts.iter().map(|part| part.of(x)).collect()).collect())
}

/// Joins parts `[samples, tokens, width]`, in order, to all tokens, with the shape of `like`, `[b s, width]`.
#[track_caller]
pub(super) fn join(parts: &[Vec<Tensor>], like: &Tensor) -> Tensor {
    let rows = |x: &Tensor| x.reshape([x.dim(0) * x.dim(1), x.dim(2)]);
    match &parts.iter().flatten().map(rows).collect::<Vec<_>>()[..] {
        [] => like.clone(),
        all => concatenated(all, 0),
    }
}

/// Notes that all parts together are one tensor, which a block passes on to the next.
pub(super) fn rows_of_one(parts: Vec<Vec<Tensor>>) -> Vec<Vec<Tensor>> {
    let all = parts.concat();
    if let [first, _, ..] = &all[..] {
        first.trace().rows_of_one(&all);
    }
    parts
}

/// Concatenates at least one tensor along `axis`.
#[track_caller]
pub(super) fn concatenated(parts: &[Tensor], axis: usize) -> Tensor {
    match parts {
        [whole] => whole.clone(),
        _ => parts[0].concat(&parts[1..].iter().collect::<Vec<_>>(), axis),
    }
}
