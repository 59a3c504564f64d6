//! The tokens of a batch in parts, in which a block of a transformer is computed one after another: what it has of one part is
//! freed before the next, in the backward pass too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::context::Context;
use crate::dtype::DType;
use crate::graph::Tensor;

/// Consecutive samples of a batch `[b, s]`, whose tokens are computed in one part or in several.
pub(super) struct Samples {
    pub parts: Vec<Part>,
    /// Positions of all tokens, `u32 [samples, s]`, if they do not count from 0.
    pub positions: Option<Tensor>,
}

/// Consecutive tokens of some samples: of several from their start to their end, or some of one sample.
pub(super) struct Part {
    /// The tokens of the batch, where those of a sample come after those of the sample before.
    rows: Range<usize>,
    /// Tokens of each sample.
    tokens: usize,
    /// Position of the first token in its sample.
    pub first: usize,
    /// Positions of all tokens, `u32 [samples, tokens]`, if they do not count from 0.
    pub positions: Option<Tensor>,
    /// Where the document of each key starts and ends, `u32 [samples, keys, 2]`, for keys from that on which the first token sees.
    pub documents: BTreeMap<usize, Tensor>,
}

impl Samples {
    /// Divides `ids [b, s]` into parts of at most `rows` tokens: the parts of one or several whole samples, in order. `windows` are
    /// those of the layers that compute them.
    #[track_caller]
    pub(super) fn all(
        ids: &Tensor,
        rows: usize,
        context: Option<&Context>,
        windows: &BTreeSet<Option<usize>>,
    ) -> Vec<Self> {
        let [b, s] = [ids.dim(0), ids.dim(1).max(1)];
        let samples = (rows / s).max(1);
        let of_samples = |sample: usize| {
            let count = samples.min(b - sample);
            let own = |x: &Tensor| some(x, 0, sample..sample + count);
            let positions = context.map(|context| own(&context.positions));
            let documents = context.and_then(Context::documents).map(own);
            let part = |start: usize| {
                let tokens = rows.min(s - start);
                let places = || ids.indices_like([count, tokens], 1).offset(start as f32).cast(DType::U32);
                let of_part = |positions: &Tensor| some(positions, 1, start..start + tokens);
                let first = sample * s + start;
                let mut part = Part {
                    rows: first..first + count * tokens,
                    tokens,
                    first: start,
                    positions: positions.as_ref().map(of_part).or_else(|| (start > 0).then(places)),
                    documents: BTreeMap::new(),
                };
                if let Some(all) = &documents {
                    let keys: BTreeSet<usize> =
                        windows.iter().map(|window| part.first_key(*window)).collect();
                    let from = |key: usize| (key, documents_from(all, key..part.end()));
                    part.documents = keys.into_iter().map(from).collect();
                }
                part
            };
            Self { parts: (0..s).step_by(rows.min(s)).map(part).collect(), positions }
        };
        (0..b).step_by(samples).map(of_samples).collect()
    }
}

/// A range of a tensor along an axis: the tensor itself if it is all of it.
#[track_caller]
fn some(x: &Tensor, axis: usize, range: Range<usize>) -> Tensor {
    if range == (0..x.dim(axis)) { x.clone() } else { x.slice(axis, range) }
}

/// The documents `u32 [samples, s, 2]` of some keys, counted from the first of them; of all, if that is the first one.
#[track_caller]
fn documents_from(all: &Tensor, keys: Range<usize>) -> Tensor {
    if keys.start == 0 {
        return all.clone();
    }
    let first = keys.start as f32;
    all.slice(1, keys).cast(DType::F32).offset(-first).relu().cast(DType::U32)
}

impl Part {
    /// Position of the first key that the first token sees in a window.
    pub(super) fn first_key(&self, window: Option<usize>) -> usize {
        window.map_or(0, |window| (self.first + 1).saturating_sub(window))
    }

    /// Position after the last token in its sample.
    pub(super) fn end(&self) -> usize {
        self.first + self.tokens
    }

    /// The part of all tokens, `x [b s, width]`: `[samples, tokens, width]`.
    #[track_caller]
    fn of(&self, x: &Tensor) -> Tensor {
        some(x, 0, self.rows.clone()).reshape([self.rows.len() / self.tokens, self.tokens, x.dim(1)])
    }
}

/// The parts of all tokens, `x [b s, width]`.
#[track_caller]
pub(super) fn split(x: &Tensor, samples: &[Samples]) -> Vec<Vec<Tensor>> {
    let parts = |samples: &Samples| samples.parts.iter().map(|part| part.of(x)).collect();
    rows_of_one(samples.iter().map(parts).collect())
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
