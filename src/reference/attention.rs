//! Attention one score at a time: a row of weights for each query, and its derivative.

use std::ops::Range;

use super::Array;
use super::elementwise::attention_keeps;
use super::held;
use super::rows::log_sum_exp;
use crate::dtype::DType;
use crate::graph::{Attend, AttendSizes, StepScalars};
use crate::shape::Shape;

/// The operands with the lengths of their dimensions.
struct Operands<'a> {
    attend: &'a Attend,
    sizes: AttendSizes,
    /// Position of the first query.
    first: usize,
    q: &'a [f64],
    k: &'a [f64],
    v: &'a [f64],
    /// Where the document of each position starts and ends.
    documents: Option<&'a [f64]>,
    /// The step scalars, if there is a dropout.
    words: [u32; StepScalars::WORDS],
}

/// Which operand a head belongs to.
#[derive(Clone, Copy)]
enum Part {
    Q,
    K,
    V,
}

impl<'a> Operands<'a> {
    fn new(inputs: &[Array<'a>], attend: &'a Attend) -> Self {
        let shapes: Vec<_> = inputs[..attend.operands()].iter().map(|x| x.shape).collect();
        let sizes = attend.sizes(&shapes).expect("checked when traced");
        let data = |i: usize| inputs[if attend.packed.is_some() { 0 } else { i }].data;
        let mut words = [0u32; StepScalars::WORDS];
        if attend.dropout > 0.0 {
            let last = inputs.last().expect("the step scalars are the last operand");
            for (word, &value) in words.iter_mut().zip(last.data) {
                *word = value as u32;
            }
        }
        let documents = attend.documents_of(inputs.len()).map(|i| inputs[i].data);
        Self { attend, sizes, first: 0, q: data(0), k: data(1), v: data(2), documents, words }
    }

    /// Returns the index of the first element of a head, for sample `b`, query head `head` and position `i`
    /// in the sequence.
    fn at(&self, part: Part, b: usize, head: usize, i: usize) -> usize {
        let AttendSizes { heads, kv_heads, rows, cols, size, .. } = self.sizes;
        let kv = head / (heads / kv_heads);
        let packed = self.attend.packed.is_some();
        let (length, lead, first) = match (part, packed) {
            (Part::Q, false) => (rows, heads, head),
            (_, false) => (cols, kv_heads, kv),
            (Part::Q, true) => (rows, heads + 2 * kv_heads, head),
            (Part::K, true) => (rows, heads + 2 * kv_heads, heads + kv),
            (Part::V, true) => (rows, heads + 2 * kv_heads, heads + kv_heads + kv),
        };
        ((b * length + i) * lead + first) * size
    }

    /// Returns the keys that a query sees.
    fn seen(&self, b: usize, i: usize) -> Range<usize> {
        let seen = self.attend.band.seen(self.first + i, self.sizes.cols);
        let Some(documents) = self.documents else { return seen };
        let at = i + self.attend.offset as usize;
        let [start, end] = [0, 1].map(|e| documents[(b * self.sizes.cols + at) * 2 + e] as usize);
        let start = seen.start.max(start.min(at));
        start..seen.end.min(end.max(at + 1))
    }

    /// Returns the keys that a query sees, and its scores with them.
    fn scores(&self, b: usize, head: usize, i: usize) -> (Range<usize>, Vec<f64>) {
        let seen = self.seen(b, i);
        let slope = self.attend.slope(head, self.sizes.heads);
        let q = &self.q[self.at(Part::Q, b, head, i)..][..self.sizes.size];
        let one = |j: usize| {
            let product = dot(q, &self.k[self.at(Part::K, b, head, j)..]);
            self.attend.capped(product).0 - slope * (self.first + i).abs_diff(j) as f64
        };
        (seen.clone(), seen.map(one).collect())
    }

    /// Returns the derivative of a score by its query and key's product.
    fn factor_of_score(&self, b: usize, head: usize, i: usize, j: usize) -> f64 {
        let q = &self.q[self.at(Part::Q, b, head, i)..][..self.sizes.size];
        self.attend.capped(dot(q, &self.k[self.at(Part::K, b, head, j)..])).1
    }

    /// Returns the factor by which dropout multiplies weight `j` of a query.
    fn factor(&self, b: usize, head: usize, i: usize, j: usize) -> f64 {
        let p = self.attend.dropout;
        if p == 0.0 {
            return 1.0;
        }
        let [first, heads] = self.attend.layer_heads(self.sizes.heads);
        let row = (b * heads + first + head) * self.sizes.rows + i;
        let kept = attention_keeps(row, j, self.attend.key, self.words, p);
        if kept { 1.0 / (1.0 - p) } else { 0.0 }
    }

    fn each_row(&self, mut body: impl FnMut(usize, usize, usize)) {
        for b in 0..self.sizes.batch {
            for head in 0..self.sizes.heads {
                (0..self.sizes.rows).for_each(|i| body(b, head, i));
            }
        }
    }

    /// Returns the index of the first element of a row in the result.
    fn result(&self, b: usize, head: usize, i: usize) -> usize {
        ((b * self.sizes.rows + i) * self.sizes.heads + head) * self.sizes.size
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(sum: &mut [f64], factor: f64, x: &[f64]) {
    sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * x);
}

/// Returns the result and the log-sum-exp of each row's scores.
pub(super) fn attention(inputs: &[Array], attend: &Attend) -> Vec<Vec<f64>> {
    attended(&Operands::new(inputs, attend))
}

fn attended(x: &Operands) -> Vec<Vec<f64>> {
    let AttendSizes { batch, heads, rows, size, .. } = x.sizes;
    let mut o = vec![0.0; batch * rows * heads * size];
    let mut lse = Vec::with_capacity(batch * heads * rows);
    x.each_row(|b, head, i| {
        let (seen, scores) = x.scores(b, head, i);
        let (top, rest) = log_sum_exp(&scores);
        lse.push(top + rest);
        let o = &mut o[x.result(b, head, i)..][..size];
        for (j, score) in seen.zip(scores) {
            let weight = (score - top - rest).exp() * x.factor(b, head, i, j);
            add(o, weight, &x.v[x.at(Part::V, b, head, j)..]);
        }
    });
    vec![o, lse]
}

/// Returns the result of attention over caches, and the caches with the new rows.
pub(super) fn over_cache(inputs: &[Array], attend: &Attend, dtype: DType) -> (Vec<f64>, [Vec<f64>; 2]) {
    let &[batch, rows, heads, size] = inputs[0].shape.dims() else { unreachable!("inferred") };
    let &[pages, page, kv_heads, _] = inputs[Attend::CACHES[0]].shape.dims() else {
        unreachable!("inferred")
    };
    let table = &inputs[Attend::PAGES];
    let (length, pitch) = (table.shape.last() * page, kv_heads * size);
    let mut caches = Attend::CACHES.map(|i| inputs[i].data.to_vec());
    let mut o = Vec::with_capacity(batch * rows * heads * size);
    for b in 0..batch {
        let used = (inputs[Attend::PAGES + 1].data[b] as usize).min(length);
        // The page of row `j`, and where the row would begin.
        let place = |j: usize| {
            let of = table.data[b * table.shape.last() + j / page] as usize;
            (of, (of.min(pages - 1) * page + j % page) * pitch)
        };
        // One text: the rows of its pages and the new ones.
        let whole = |i: usize| {
            let cache = inputs[Attend::CACHES[i - 1]].data;
            let old = (0..used).flat_map(|j| &cache[place(j).1..][..pitch]);
            old.chain(&inputs[i].data[b * rows * pitch..][..rows * pitch]).copied().collect::<Vec<f64>>()
        };
        let (k, v, queries) = (whole(1), whole(2), heads * size);
        let q = &inputs[0].data[b * rows * queries..][..rows * queries];
        let of = |rows: usize, lead: usize| Shape::from([1, rows, lead, size]);
        let keys = of(used + rows, pitch / size);
        let text = [(of(rows, heads), q), (keys, &k[..]), (keys, &v[..])];
        let text = text.map(|(shape, data)| Array { shape, data });
        o.extend_from_slice(&attended(&Operands { first: used, ..Operands::new(&text, attend) })[0]);
        for (cache, whole) in caches.iter_mut().zip([k, v]) {
            for j in used..(used + rows).min(length) {
                let (of, at) = place(j);
                let elements: Vec<f32> = whole[j * pitch..][..pitch].iter().map(|x| *x as f32).collect();
                if of < pages {
                    cache[at..][..pitch].copy_from_slice(&held(dtype, &elements));
                }
            }
        }
    }
    (o, caches)
}

/// Returns the gradients of the operands, from the definition; `lse` is not read.
pub(super) fn gradient(inputs: &[Array], attend: &Attend) -> Vec<Vec<f64>> {
    let x = Operands::new(inputs, attend);
    let own = attend.operands();
    let dy = inputs[own + 2].data;
    let size = x.sizes.size;
    let mut results: Vec<Vec<f64>> = inputs[..own].iter().map(|x| vec![0.0; x.data.len()]).collect();
    let place = |part: usize| if own == 1 { 0 } else { part };
    x.each_row(|b, head, i| {
        let (seen, scores) = x.scores(b, head, i);
        let (top, rest) = log_sum_exp(&scores);
        let dy = &dy[x.result(b, head, i)..][..size];
        // Σ weight · slope is computed from the result `o`, as in the kernels, so that rounding errors of `o`
        // have the same effect.
        let mean = dot(dy, &inputs[own].data[x.result(b, head, i)..]);
        let q_at = x.at(Part::Q, b, head, i);
        for (j, score) in seen.zip(scores) {
            let (weight, factor) = ((score - top - rest).exp(), x.factor(b, head, i, j));
            let (k_at, v_at) = (x.at(Part::K, b, head, j), x.at(Part::V, b, head, j));
            let slope = weight * (factor * dot(dy, &x.v[v_at..]) - mean) * x.factor_of_score(b, head, i, j);
            add(&mut results[place(0)][q_at..][..size], slope, &x.k[k_at..]);
            add(&mut results[place(1)][k_at..][..size], slope, &x.q[q_at..]);
            add(&mut results[place(2)][v_at..][..size], weight * factor, dy);
        }
    });
    results
}
