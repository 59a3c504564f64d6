//! Splits tensors larger than a binding along the batch: operations on them run on one part of its samples after
//! another. Gradients follow by differentiation. What samples have in common, such as the statistics of a batch norm and
//! gradients of weights, is computed of each part and combined.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::Location;

use crate::graph::{Graph, Mode, Node, Op, Reduction, Source, Tensor, Trace, Value, ValueId, whole_words};
use crate::shape::Shape;

/// Rewrites operations on tensors of more than `max` bytes as operations on parts of the batch. If that is
/// not possible, the graph is unchanged, and planning reports the tensor.
pub(crate) fn split_large_tensors(graph: Graph, max: u64) -> Graph {
    if !graph.values.iter().any(|value| is_large(value, max)) {
        return graph;
    }
    let folded = without_large_views(graph.clone(), max);
    match Split::new(&folded, max) {
        Some(split) => split.run(folded),
        None => graph,
    }
}

fn is_large(value: &Value, max: u64) -> bool {
    !value.class.is_persistent() && value.bytes() > max
}

/// Reshapes of reshaped tensors as reshapes of the tensors, without large ones that are not read then: the batch need not be their
/// first dimension.
fn without_large_views(mut graph: Graph, max: u64) -> Graph {
    let mut source: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for node in graph.nodes.iter_mut().filter(|node| matches!(node.op, Op::Reshape(_))) {
        let of = source.get(&node.inputs[0]).copied().unwrap_or(node.inputs[0]);
        node.inputs[0] = of;
        source.insert(node.outputs[0], of);
    }
    let read: BTreeSet<ValueId> =
        graph.nodes.iter().flat_map(|node| node.inputs.iter().copied()).chain(graph.observed()).collect();
    let Graph { nodes, values, .. } = &mut graph;
    let unread = |id: &ValueId| is_large(&values[id.index()], max) && !read.contains(id);
    nodes.retain(|node| !(matches!(node.op, Op::Reshape(_)) && node.outputs.iter().all(unread)));
    graph
}

/// Parts have at most this fraction, 1/4, of the maximum size: several share a buffer without much unused
/// memory.
const QUARTERS: u64 = 4;

/// Returns which operands of an operation have the samples of its result along their first dimension; `None` if samples
/// depend on each other, unless the operation [`combines`] its parts.
fn split_operands(graph: &Graph, node: &Node) -> Option<Vec<bool>> {
    let shape = |id: &ValueId| graph.value(*id).shape;
    let result = shape(node.outputs.first()?);
    let n = *result.dims().first()?;
    let count = node.inputs.len();
    let only = |operand: usize| Some((0..count).map(|i| i == operand).collect());
    // Others are broadcast.
    let equal = |id: &ValueId| shape(id).rank() == result.rank() && shape(id).dims()[0] == n;
    match &node.op {
        Op::Conv2d { source: Source::Tensor, then: None, .. }
        | Op::Conv2dInput { then: None, .. }
        | Op::Unary(_)
        | Op::Cast(_)
        | Op::Copy
        | Op::Detach
        | Op::Dropout { .. }
        | Op::MaxPool2d(_)
        | Op::AvgPool2d(_)
        | Op::Resample { .. }
        | Op::Slice { .. }
        | Op::BatchNorm(_)
        | Op::BatchStats { .. }
        | Op::Reshape(_) => only(0),
        // Equal maxima of several parts would not share a gradient.
        Op::Reduce { kind, axes } if *kind != Reduction::Max || axes & 1 == 0 => only(0),
        Op::Stride { axis, .. } | Op::Place { axis, .. } if *axis > 0 => only(0),
        Op::Permute(order) if order[0] == 0 => only(0),
        Op::Softmax { .. } | Op::ArgSort { .. } | Op::RowNorm { .. } if shape(&node.inputs[0]).rank() > 1 => {
            only(0)
        }
        Op::MatMul { ta: false, then: None, .. } if result.rank() == 2 => only(0),
        Op::MatMul { then: None, .. } if result.rank() > 2 => Some(node.inputs.iter().map(equal).collect()),
        Op::Binary(_) | Op::Expand(_) => Some(node.inputs.iter().map(equal).collect()),
        Op::Gather { axis } | Op::ScatterAdd { axis, .. } if *axis > 0 => {
            Some(node.inputs.iter().map(equal).collect())
        }
        // Along the first dimension operands are whole: parts of the result are cut out of them.
        Op::Concat { axis } => Some(vec![*axis > 0; count]),
        Op::Rotary { .. } | Op::Gates(_) | Op::CrossEntropy => Some(vec![true; count]),
        Op::Embedding => only(1),
        // The last operand is the step's scalars.
        Op::Attention(attend) => Some((0..count).map(|i| i + 1 < count || attend.dropout == 0.0).collect()),
        Op::Fill { .. } => Some(Vec::new()),
        Op::Iota { axis, .. } if *axis > 0 => Some(Vec::new()),
        _ => None,
    }
}

/// Whether the result of an operation does not consist of samples in parts: [`combined`] or [`taken`] makes it of the parts of
/// the first operand.
fn combines(op: &Op) -> bool {
    match op {
        Op::Reduce { axes, .. } => axes & 1 == 1,
        Op::Slice { axis, .. } => *axis == 0,
        Op::BatchStats { .. } => true,
        _ => false,
    }
}

/// Whether result `i` of an operation has the samples along its first dimension.
fn splits_result(op: &Op, i: usize) -> bool {
    // Positions of maxima are bytes, four to a word. Only the backward pass reads them.
    let bytes = i == 1 && matches!(op, Op::MaxPool2d(_));
    !bytes && !combines(op)
}

struct Split {
    /// Samples of the batch. The first dimension of what is split is a multiple.
    batch: usize,
    /// First sample of each part, and the end.
    cuts: Vec<usize>,
    /// Whether each node reads or writes a large tensor.
    inside: Vec<bool>,
    parts: BTreeMap<ValueId, Vec<ValueId>>,
    /// Largest key of a random draw. Each part has its own.
    keys: u32,
}

impl Split {
    /// `None` if nothing is too large, or if a large tensor belongs to an operation that does not work sample
    /// by sample.
    fn new(graph: &Graph, max: u64) -> Option<Self> {
        let large = |id: &ValueId| is_large(graph.value(*id), max);
        let touches = |node: &Node| node.inputs.iter().chain(&node.outputs).any(large);
        let inside: Vec<bool> = graph.nodes.iter().map(touches).collect();
        if graph.observed().any(|id| large(&id)) {
            return None;
        }
        let mut split = Vec::new();
        for (node, _) in graph.nodes.iter().zip(&inside).filter(|(_, inside)| **inside) {
            let operands = split_operands(graph, node)?;
            let whole = match node.op {
                Op::Concat { axis: 0 } => &node.inputs[..],
                _ if combines(&node.op) => &node.outputs[..],
                _ => &[],
            };
            if whole.iter().any(large) {
                return None;
            }
            split.extend(node.inputs.iter().zip(operands).filter(|(_, split)| *split).map(|(id, _)| *id));
            split.extend(
                (0..node.outputs.len()).filter(|i| splits_result(&node.op, *i)).map(|i| node.outputs[i]),
            );
        }
        let batch = split.iter().try_fold(0, |batch, id| {
            Some(greatest_common_divisor(batch, *graph.value(*id).shape.dims().first()?))
        })?;
        let most = split.iter().filter(|id| large(id)).map(|id| graph.value(*id).bytes()).max()?;
        let cuts = match joined_parts(graph, batch, most, max) {
            Some(cuts) => cuts,
            None => {
                let count = part_count(batch, most, max)?;
                (0..=count).map(|i| i * batch / count).collect()
            }
        };
        let whole = |id: &ValueId| {
            let value = graph.value(*id);
            let rows = |cut: usize| value.shape.dims()[0] / batch * cut;
            let mut parts = cuts.windows(2).map(|cut| (rows(cut[0]), rows(cut[1]) - rows(cut[0])));
            !value.dtype.is_half() || parts.all(|(start, len)| whole_words(value.shape, 0, start, len))
        };
        // A word of two elements in 16 bits would belong to two parts.
        let whole = split.iter().all(whole);
        whole.then(|| Self { batch, cuts, inside, parts: BTreeMap::new(), keys: graph.draw_keys() })
    }

    fn run(mut self, mut graph: Graph) -> Graph {
        let whole = graph.clone();
        let nodes = std::mem::take(&mut graph.nodes);
        let inside = std::mem::take(&mut self.inside);
        let trace = Trace::over(graph, Mode::Train);
        for (node, inside) in nodes.into_iter().zip(inside) {
            if inside {
                let operands = split_operands(&whole, &node).unwrap_or_default();
                trace.layer(&node.layer, || trace.phase(node.phase, || self.node(&trace, &node, &operands)));
            } else {
                trace.append(node);
            }
        }
        trace.finish().unwrap_or(whole)
    }

    fn node(&mut self, trace: &Trace, node: &Node, operands: &[bool]) {
        let count = self.cuts.len() - 1;
        let inputs: Vec<Vec<Tensor>> = (node.inputs.iter().zip(operands.iter().copied()))
            .map(|(id, split)| match split {
                true => self.parts_of(trace, node, *id).iter().map(|id| trace.tensor(*id)).collect(),
                false => vec![trace.tensor(*id); count],
            })
            .collect();
        if let Op::Slice { axis: 0, start, len } = node.op {
            let rows = taken(inputs[0].iter(), start..start + len, node.at);
            return trace.append_view(node, &rows, node.outputs[0]);
        }
        let results: Vec<Vec<Tensor>> = (0..count)
            .map(|part| {
                let inputs: Vec<&Tensor> = inputs.iter().map(|parts| &parts[part]).collect();
                let results = match node.op {
                    Op::Concat { axis: 0 } => {
                        let rows = self.rows(trace.tensor(node.outputs[0]).dim(0), part);
                        vec![taken(inputs.into_iter(), rows, node.at)]
                    }
                    _ => trace.emit(self.op_of_part(&node.op, part), &inputs, node.at),
                };
                let name = |(id, result): (&ValueId, Tensor)| {
                    result.named(&format!("{}.part{}", trace.name_of(*id), part + 1))
                };
                node.outputs.iter().zip(results).map(name).collect()
            })
            .collect();
        let of = |i: usize| -> Vec<Tensor> { results.iter().map(|results| results[i].clone()).collect() };
        if combines(&node.op) {
            let count = trace.tensor(node.inputs[0]).shape().numel() as f64;
            let shares =
                inputs[0].iter().map(|part| (part.shape().numel() as f64 / count) as f32).collect::<Vec<_>>();
            let results = combined(&node.op, &of, &shares, count);
            for (id, result) in node.outputs.iter().zip(results) {
                trace.append_view(node, &result, *id);
            }
            return;
        }
        for (i, id) in node.outputs.iter().enumerate().filter(|(i, _)| splits_result(&node.op, *i)) {
            let parts: Vec<ValueId> = of(i).iter().filter_map(Tensor::id).collect();
            self.parts.insert(*id, parts.clone());
            // Dead code if no node reads the whole tensor.
            trace.append(node.sibling(Op::Concat { axis: 0 }, parts, vec![*id]));
        }
    }

    fn op_of_part(&self, op: &Op, part: usize) -> Op {
        let of_part = |shape: &Shape| shape.with(0, self.rows(shape.dims()[0], part).len());
        let mut op = op.clone();
        match &mut op {
            Op::Reshape(shape) | Op::Expand(shape) | Op::Fill { shape, .. } | Op::Iota { shape, .. } => {
                *shape = of_part(shape);
            }
            Op::Reduce { kind: kind @ Reduction::Mean, axes } if *axes & 1 == 1 => *kind = Reduction::Sum,
            op => {
                if let Some(key) = op.draw_key() {
                    *key += part as u32 * self.keys;
                }
            }
        }
        op
    }

    /// The rows of a part of a value that has this many.
    fn rows(&self, all: usize, part: usize) -> Range<usize> {
        let [start, end] = [0, 1].map(|i| all / self.batch * self.cuts[part + i]);
        start..end
    }

    /// The parts of a value: the parts it was computed in, or slices.
    fn parts_of(&mut self, trace: &Trace, node: &Node, id: ValueId) -> Vec<ValueId> {
        if let Some(parts) = self.parts.get(&id) {
            return parts.clone();
        }
        let (value, name) = (trace.tensor(id), trace.name_of(id));
        let slice = |part: usize| {
            let rows = taken([&value].into_iter(), self.rows(value.dim(0), part), node.at);
            rows.named(&format!("{name}.part{}", part + 1)).id()
        };
        let parts: Vec<ValueId> = (0..self.cuts.len() - 1).filter_map(slice).collect();
        self.parts.insert(id, parts.clone());
        parts
    }
}

/// Combines the results of the parts, with each part's share of the samples, of `elements` in all.
fn combined(op: &Op, of: &dyn Fn(usize) -> Vec<Tensor>, shares: &[f32], elements: f64) -> Vec<Tensor> {
    let sum = |parts: Vec<Tensor>| parts.into_iter().reduce(|sum, part| sum.add(&part));
    let mean =
        |parts: &[Tensor]| sum(parts.iter().zip(shares).map(|(part, share)| part.scale(*share)).collect());
    match op {
        Op::Reduce { kind: Reduction::Mean, .. } => {
            let sum = sum(of(0));
            sum.map(|sum| sum.scale((sum.shape().numel() as f64 / elements) as f32)).into_iter().collect()
        }
        Op::BatchStats { eps, .. } => {
            // Chan, Golub and LeVeque 1979.
            let (means, variances) = (of(0), of(2));
            let Some(middle) = mean(&means) else { return Vec::new() };
            let about = |(mean, variance): (&Tensor, &Tensor)| variance.add(&mean.sub(&middle).square());
            let spread = mean(&means.iter().zip(&variances).map(about).collect::<Vec<_>>());
            let deviation = spread.as_ref().map(|spread| spread.offset(*eps).sqrt().recip());
            std::iter::once(middle).chain(deviation).chain(spread).collect()
        }
        _ => sum(of(0)).into_iter().collect(),
    }
}

/// Takes a range of rows out of parts.
fn taken<'a>(
    parts: impl Iterator<Item = &'a Tensor>,
    range: Range<usize>,
    at: &'static Location<'static>,
) -> Tensor {
    let mut first = 0;
    let mut own = Vec::new();
    for part in parts {
        let end = first + part.dim(0);
        let (from, to) = (range.start.max(first), range.end.min(end));
        if (from, to) == (first, end) {
            own.push(part.clone());
        } else if from < to {
            own.push(part.one(Op::Slice { axis: 0, start: from - first, len: to - from }, &[part], at));
        }
        first = end;
    }
    match &own[1..] {
        [] => own.remove(0),
        others => own[0].concat(&others.iter().collect::<Vec<_>>(), 0),
    }
}

/// Where the tensors begin that the graph joins along the batch to a large one, and the end: if all such tensors are as long, and
/// none is too large.
fn joined_parts(graph: &Graph, batch: usize, most: u64, max: u64) -> Option<Vec<usize>> {
    let joins = graph.nodes.iter().filter(|node| {
        let result = node.outputs.first().map(|id| graph.value(*id));
        node.op == Op::Concat { axis: 0 }
            && result.is_some_and(|value| is_large(value, max) && value.shape.dims()[0] == batch)
    });
    let cuts = |node: &Node| {
        let rows = node.inputs.iter().scan(0, |end, id| {
            *end += graph.value(*id).shape.dims()[0];
            Some(*end)
        });
        std::iter::once(0).chain(rows).collect::<Vec<usize>>()
    };
    let mut all: BTreeSet<Vec<usize>> = joins.map(cuts).collect();
    let cuts = all.pop_first().filter(|_| all.is_empty())?;
    let longest = cuts.windows(2).map(|cut| cut[1] - cut[0]).max()?;
    (most.div_ceil(batch as u64) * longest as u64 <= max).then_some(cuts)
}

/// The number of parts of a batch whose largest tensor has `most` bytes: one of equal parts if there is such a number at most a
/// quarter above the smallest. `None` if parts of one sample are too large.
fn part_count(batch: usize, most: u64, max: u64) -> Option<usize> {
    let sample = most.div_ceil(batch as u64);
    let least = usize::try_from(most.div_ceil((max / QUARTERS).max(1))).ok()?.clamp(1, batch);
    let equal = (least..=batch.min(least + least / 4)).find(|count| batch.is_multiple_of(*count));
    let count = equal.unwrap_or(least);
    (batch > 1 && sample * batch.div_ceil(count) as u64 <= max).then_some(count)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::{eliminate_dead_code, tests::differentiated};
    use super::*;
    use crate::dtype::DType;
    use crate::graph::{Attention, Class, Init, Params, RunningStats, Window};
    use crate::reference::Twin;

    #[test]
    fn large_tensors_are_split_and_others_are_not() {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", |trace| {
            let w = trace.input("w", [4, 2, 3, 3]);
            let x = trace.input("x", [5, 2, 6, 6]).conv2d(&w, None, Window::square(3).padding(1), 1).relu();
            x.max_pool2d(Window::square(2).stride(2)).sum(&[])
        });
        let graph = crate::compile::passes::simplify(graph.unwrap());
        assert_eq!(split_large_tensors(graph.clone(), 5 * 4 * 36 * 4).nodes.len(), graph.nodes.len());
        let parts = eliminate_dead_code(split_large_tensors(graph, 2 * 4 * 36 * 4));
        let count = |name: &str| parts.nodes.iter().filter(|n| n.op.name() == name).count();
        assert_eq!(["slice", "conv2d", "max_pool2d", "concat", "relu"].map(count), [5, 5, 5, 1, 1]);
        let largest = parts.nodes.iter().flat_map(|n| &n.outputs).map(|id| parts.value(*id).bytes()).max();
        assert!(largest <= Some(1152));
    }

    /// Outputs, gradients and buffers after a step, whole and with computed tensors of at most `max` bytes.
    fn whole_and_split(params: &Params, max: u64, body: impl FnOnce(&Trace) -> Tensor) -> [Vec<Vec<f64>>; 2] {
        let graph = Trace::record(params, Mode::Train, "y", body).expect("valid");
        let parts = eliminate_dead_code(split_large_tensors(graph.clone(), max));
        let largest = |graph: &Graph| {
            let computed = graph.nodes.iter().flat_map(|node| &node.outputs);
            computed.map(|id| graph.value(*id).bytes()).max().expect("there are nodes")
        };
        assert!(
            largest(&graph) > max && largest(&parts) <= max,
            "{} and {}",
            largest(&graph),
            largest(&parts)
        );
        [graph, parts].map(|graph| {
            let graph = differentiated(graph);
            let mut twin = Twin::new(&graph);
            for (id, value) in graph.inputs() {
                let number = |i: u64| match value.dtype {
                    DType::U32 => ((i * 5 + 3) % 7) as f64,
                    _ => ((i * 37 + id.index() as u64 * 11) % 29) as f64 / 7.0 - 1.5,
                };
                let numbers: Vec<f64> = (0..value.shape.numel()).map(number).collect();
                twin.set(&value.name, &numbers).expect("an input");
            }
            twin.run().expect("it runs");
            let buffers = graph.ids().filter(|(_, value)| value.class == Class::Parameter).map(|(id, _)| id);
            let read: Vec<ValueId> = graph.outputs.iter().map(|(_, id)| *id).chain(buffers).collect();
            read.into_iter().map(|id| twin.value(id).expect("it was computed").to_vec()).collect()
        })
    }

    fn assert_equal([whole, parts]: [Vec<Vec<f64>>; 2]) {
        assert_eq!(whole.len(), parts.len());
        for (a, b) in whole.iter().flatten().zip(parts.iter().flatten()) {
            assert!((a - b).abs() <= 1e-6 * a.abs().max(1e-2), "{a} in the whole, {b} of parts");
        }
    }

    #[test]
    fn parts_of_images_have_the_statistics_and_gradients_of_the_whole() {
        let params = Params::new(0);
        let weight = |name: &str, shape: [usize; 4]| params.add(name, shape, Init::fan_in(9));
        let (first, second) = (weight("first", [4, 2, 3, 3]), weight("second", [4, 4, 1, 1]));
        let vectors = ["gamma", "beta"].map(|name| params.add(name, [4], Init::Uniform(1.0)));
        let running = ["mean", "var"].map(|name| params.add_buffer(name, [4], Init::Constant(0.5)));
        let both = whole_and_split(&params, 2 * 4 * 36 * 4, |trace| {
            let [first, second] = [&first, &second].map(|param| trace.param(param));
            let [gamma, beta] = [0, 1].map(|i| trace.param(&vectors[i]));
            let [mean, var] = [0, 1].map(|i| trace.param(&running[i]));
            let running = RunningStats { mean: &mean, var: &var, momentum: 0.1 };
            let x = trace.input("x", [5, 2, 6, 6]).conv2d(&first, None, Window::square(3).padding(1), 1);
            let y = x.batch_norm_train(&gamma, &beta, 1e-3, Some(&running)).relu();
            let z = y.conv2d(&second, None, Window::square(1), 1).batch_norm_train(&beta, &gamma, 1e-3, None);
            let pooled = y.concat(&[&z.add(&x)], 1).avg_pool2d(Window::square(2).stride(2), true);
            pooled.square().sum(&[1, 2, 3]).mean(&[]).add(&z.mean(&[0, 2]).sigmoid().sum(&[]))
        });
        assert_equal(both);
    }

    #[test]
    fn parts_of_sequences_have_the_gradients_of_the_whole() {
        let params = Params::new(0);
        let weight = |name: &str, shape: [usize; 2]| params.add(name, shape, Init::fan_in(shape[1]));
        let [table, inner, outer, out] =
            [("table", [7, 8]), ("inner", [24, 8]), ("outer", [8, 8]), ("out", [7, 8])]
                .map(|(name, shape)| weight(name, shape));
        let gamma = params.add("gamma", [8], Init::Constant(1.0));
        let both = whole_and_split(&params, 3 * 5 * 8 * 4, |trace| {
            let [table, inner, outer, out] = [&table, &inner, &outer, &out].map(|param| trace.param(param));
            let ids = trace.ids("ids", [6, 5], 7);
            let x = table.embedding(&ids);
            let normed = x.rms_norm(&trace.param(&gamma), 1e-5);
            let product = |x: &Tensor, w: &Tensor| x.matmul_transposed(w, false, true);
            let qkv = product(&normed.reshape([30, 8]), &inner).reshape([6, 5, 6, 4]);
            let mixed = qkv.self_attention(2, 2, &Attention::default()).reshape([30, 8]);
            let y = x.reshape([30, 8]).add(&product(&mixed, &outer)).gelu();
            product(&y, &out).cross_entropy(&trace.labels("labels", [30], 7))
        });
        assert_equal(both);
    }

    #[test]
    fn ranges_of_samples_are_taken_from_their_parts() {
        let params = Params::new(0);
        let weight = params.add("weight", [8, 6], Init::fan_in(6));
        let both = whole_and_split(&params, 2 * 3 * 8 * 4, |trace| {
            let x = trace.input("x", [5, 3, 2]).concat(&[&trace.input("z", [5, 3, 4])], 2).reshape([15, 6]);
            let y = x.matmul_transposed(&trace.param(&weight), false, true).gelu();
            // Within a part, across two, and all of the last one.
            let parts = [0..2, 2..8, 8..12, 12..15].map(|rows| y.slice(0, rows).square());
            let joined = parts[1].concat(&[&parts[3], &parts[0], &parts[2]], 0);
            joined.add(&y).sigmoid().sum(&[])
        });
        assert_equal(both);
    }

    /// One sample, whose first dimension is not the batch: what the network joins is split where it was joined.
    #[test]
    fn parts_of_one_sample_are_those_that_the_network_joins() {
        let params = Params::new(0);
        let weight = |name: &str, rows: usize| params.add(name, [rows, 8], Init::fan_in(8));
        let (table, inner, out) = (weight("table", 7), weight("inner", 8), weight("out", 7));
        let gamma = params.add("gamma", [8], Init::Constant(1.0));
        let body = |trace: &Trace| {
            let [table, inner, out] = [&table, &inner, &out].map(|param| trace.param(param));
            let product = |x: &Tensor, w: &Tensor| x.matmul_transposed(w, false, true);
            let x = table.embedding(&trace.ids("ids", [1, 10], 7).reshape([10]));
            let part = |rows: Range<usize>| {
                let x = x.slice(0, rows.clone());
                x.add(&product(&x, &inner).reshape([1, rows.len(), 8]).gelu().reshape([rows.len(), 8]))
            };
            let joined = part(0..4).concat(&[&part(4..8), &part(8..10)], 0);
            let normed = joined.rms_norm(&trace.param(&gamma), 1e-5).reshape([1, 10, 8]).reshape([10, 8]);
            let loss = |rows: Range<usize>| product(&normed.slice(0, rows), &out).square().sum(&[]);
            loss(0..2).add(&loss(2..4)).add(&loss(4..8)).add(&loss(8..10))
        };
        assert_equal(whole_and_split(&params, 4 * 8 * 4, body));
        let graph = Trace::record(&params, Mode::Train, "y", body).expect("valid");
        let parts = eliminate_dead_code(split_large_tensors(graph, 4 * 8 * 4));
        let count = |name: &str| parts.nodes.iter().filter(|n| n.op.name() == name).count();
        // Slices are those of three parts of the ids, and of two halves of the first part.
        assert_eq!(["embedding", "rms_norm", "concat", "slice"].map(count), [3, 3, 0, 5]);
    }

    #[test]
    fn indivisible_operations_are_not_split() {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", |trace| {
            trace.input("x", [5, 2, 6, 6]).square().permute(&[1, 0, 2, 3]).sum(&[])
        });
        let graph = graph.unwrap();
        assert_eq!(split_large_tensors(graph.clone(), 300).nodes.len(), graph.nodes.len());
    }
}
