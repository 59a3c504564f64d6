//! Gradient accumulation: runs the forward and backward pass once for each part of the batch, and sums
//! gradients in order. With data parallelism each rank runs some of the parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::buckets::{Part, SharedBucket, Sums};
use super::exchange::{Exchanges, add_parts};
use super::lookup_grads::Lookups;
use crate::compile::Parallel;
use crate::dtype::{DType, WeightStorage};
use crate::graph::{Binary, Class, Graph, Node, Op, Phase, STEP_SCALARS, Unary, Value, ValueId, whole_words};
use crate::shape::Shape;

/// A value and its gradient.
type Pair = (ValueId, ValueId);

/// Parts of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// Their number, on all ranks together.
    pub total: u32,
    /// The numbers of those of each rank.
    pub counts: Vec<u32>,
    pub parallel: Parallel,
    /// Whether the update of a parameter reads gradients of others, such as for their norm.
    pub whole_gradients: bool,
    /// Storage type of large weights.
    pub weights: WeightStorage,
}

impl Parts {
    /// The number of those of this rank.
    pub(crate) fn own(&self) -> u32 {
        self.counts[self.parallel.rank as usize]
    }
}

/// A step over the parts of a batch.
pub(crate) struct Accumulated {
    pub graph: Graph,
    /// Pairs of a parameter and the sum of its gradients, or of this rank's share of them.
    pub sums: Vec<Pair>,
    /// The gradients that are read, over the whole batch.
    pub read: Vec<ValueId>,
    /// Parameters whose updates the ranks share.
    pub shared: Vec<SharedBucket>,
}

/// Rewrites a differentiated graph for `b` samples as one step over the parts of a batch, each of `b` samples. Each
/// input gets as many times its rows as this rank has parts. These run forward and backward one after another, so
/// that their activations share memory. `gradients` holds pairs of a parameter and its gradient, each seeded with the
/// inverse of the number of parts; they are returned with their sums in the order of the parts. The first output, the
/// loss, is the mean of the parts' losses. Other outputs are concatenated along their first dimension;
/// scalars are averaged. A mean over labels divides by the count of the whole batch, so that parts with fewer
/// labels weigh less and the loss is that of the whole batch.
///
/// `read` holds pairs of any value and its gradient. The gradients are returned over the whole batch: summed
/// for parameters and scalars, which all parts share, and concatenated for others.
///
/// Several ranks exchange labels, gradients, scalars and the statistics of batch norms, so that each has the sums
/// and means over all parts. What is concatenated has the parts of its own rank.
pub(crate) fn accumulate(mut graph: Graph, [gradients, read]: [&[Pair]; 2], parts: Parts) -> Accumulated {
    let keys = graph.draw_keys();
    let mut nodes = std::mem::take(&mut graph.nodes);
    let mut lookups = Lookups::take(&graph, &mut nodes, gradients, parts.total);
    let outputs = std::mem::take(&mut graph.outputs);
    let ranks = parts.parallel.ranks;
    let exchanges = &Exchanges::new(parts.counts.clone(), &parts.parallel);
    let mut exchanged = Sums::new(&graph, &nodes, [gradients, read], &lookups, &parts);
    let mut copies = Copies { rows: BTreeMap::new(), graph, parts: parts.clone() };
    copies.widen_inputs();
    let shares = copies.label_shares(&nodes, exchanges);
    let mut sums: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut results: Vec<Vec<ValueId>> = vec![Vec::new(); outputs.len()];
    let mut read_parts: Vec<Vec<ValueId>> = vec![Vec::new(); read.len()];
    let mut changes: Vec<Change> = Vec::new();
    for (own, part) in parts.parallel.parts(parts.total).into_iter().enumerate() {
        let inputs: Vec<ValueId> = copies.rows.keys().copied().collect();
        let mut now = copies.slices(own, &inputs, "part", &nodes);
        now.extend(&shares);
        let mut changed = 0;
        for (n, node) in nodes.iter().enumerate().filter(|(_, node)| node.op != Op::LabelShare) {
            let mut node = node.clone();
            if let Some(key) = node.op.draw_key() {
                *key += part * keys;
            }
            node.inputs.iter_mut().for_each(|id| *id = now.get(id).copied().unwrap_or(*id));
            if ranks > 1 && !node.op.mutates().is_empty() {
                Change::note(&mut changes, changed, node);
                changed += 1;
                continue;
            }
            for id in &mut node.outputs {
                let copy = if own == 0 { *id } else { copies.copy_of(*id, part) };
                copies.graph.values[copy.index()].part = part;
                now.insert(*id, copy);
                *id = copy;
            }
            copies.graph.nodes.push(node);
            let at = |id: &ValueId| now.get(id).copied().unwrap_or(*id);
            exchanged.computed(n, own as u32, (&mut copies.graph, exchanges), &Part::Of(&at));
        }
        let at = |id: &ValueId| now.get(id).copied().unwrap_or(*id);
        for (parameter, gradient) in gradients.iter().filter(|_| ranks == 1) {
            let Some(gradient) = lookups.rest(*parameter, *gradient) else { continue };
            let sum = match sums.get(parameter) {
                Some(earlier) => copies.emit(Op::Binary(Binary::Add), &[*earlier, at(&gradient)], &nodes),
                None => at(&gradient),
            };
            sums.insert(*parameter, sum);
        }
        lookups.computed(at);
        outputs.iter().zip(&mut results).for_each(|((_, id), list)| list.push(at(id)));
        read.iter().zip(&mut read_parts).for_each(|((_, id), list)| list.push(at(id)));
    }
    // Other ranks have more parts: this one adds up its share of their gradients.
    let more = parts.own()..exchanges.rounds();
    if !more.is_empty() {
        let empty = Part::None(copies.empty(results[0][0], &nodes));
        for (round, n) in more.flat_map(|round| (0..nodes.len()).map(move |n| (round, n))) {
            exchanged.computed(n, round, (&mut copies.graph, exchanges), &empty);
        }
    }
    // The rows are on their way while the last sums are received.
    let rows = lookups.send(&mut copies.graph, exchanges);
    sums.extend(exchanged.finish((&mut copies.graph, exchanges), gradients, &lookups));
    lookups.add_to(&mut sums, rows, (&mut copies.graph, exchanges), |graph, parameter| {
        exchanged.share(graph, parameter)
    });
    let shared = exchanged.shared(&sums);
    let scalar = |graph: &Graph, id: ValueId| graph.value(id).shape.rank() == 0;
    // Of the values that are read, those that are summed.
    let summed = |graph: &Graph, id: ValueId| {
        !sums.contains_key(&id) && (graph.value(id).class == Class::Parameter || scalar(graph, id))
    };
    let averaged: Vec<bool> =
        outputs.iter().enumerate().map(|(i, (_, id))| i == 0 || scalar(&copies.graph, *id)).collect();
    let summed: Vec<bool> = read.iter().map(|(id, _)| summed(&copies.graph, *id)).collect();
    let chosen = results.iter_mut().zip(&averaged).chain(read_parts.iter_mut().zip(&summed));
    let mut lists: Vec<_> = chosen.filter(|(_, chosen)| **chosen).map(|(list, _)| list).collect();
    lists.extend(changes.iter_mut().flat_map(|change| &mut change.operands));
    let first = copies.graph.exchanges.len();
    exchanges.gather_parts(&mut copies.graph, lists);
    // The first list is that of the losses; the parts of a round may be those of some ranks.
    let of_all = parts.counts.iter().copied().min().unwrap_or(0);
    copies.graph.exchanges.get_mut(first).into_iter().for_each(|exchange| exchange.losses = of_all);
    // All lists were gathered in the same runs of parts.
    let runs = changes.first().and_then(|change| change.operands.first()).map_or(0, Vec::len);
    for parts in 0..runs {
        copies.graph.nodes.extend(changes.iter().map(|change| change.of_parts(parts)));
    }
    for (((name, id), parts), averaged) in outputs.into_iter().zip(results).zip(averaged) {
        let shape = copies.graph.value(id).shape;
        let id = if averaged { copies.mean(&parts, shape, &nodes) } else { copies.join(&parts, &nodes) };
        copies.graph.outputs.push((name, id));
    }
    let mut wholes = Vec::new();
    for (((value, gradient), parts), summed) in read.iter().zip(&read_parts).zip(summed) {
        let shape = copies.graph.value(*gradient).shape;
        wholes.push(match sums.get(value) {
            Some(sum) => *sum,
            None if summed => copies.sum(parts, shape, &nodes),
            None => copies.join(parts, &nodes),
        });
    }
    let sums = gradients.iter().map(|(parameter, _)| (*parameter, sums[parameter])).collect();
    Accumulated { graph: copies.graph, sums, read: wholes, shared }
}

/// A node of the forward pass that changes state, such as running statistics. With several ranks, each runs it for
/// the parts of all, in their order.
struct Change {
    node: Node,
    /// For each operand that is not changed, its values in the parts.
    operands: Vec<Vec<ValueId>>,
}

impl Change {
    /// Notes the node in the next part, as number `i` of its kind.
    fn note(changes: &mut Vec<Self>, i: usize, node: Node) {
        let read = |(i, _): &(usize, &ValueId)| !node.op.mutates().contains(i);
        let values: Vec<ValueId> = node.inputs.iter().enumerate().filter(read).map(|(_, id)| *id).collect();
        if i == changes.len() {
            changes.push(Self { operands: vec![Vec::new(); values.len()], node });
        }
        changes[i].operands.iter_mut().zip(values).for_each(|(list, id)| list.push(id));
    }

    fn of_parts(&self, i: usize) -> Node {
        let mut operands = self.operands.iter();
        let mutates = self.node.op.mutates();
        let input = |(n, id): (usize, &ValueId)| match mutates.contains(&n) {
            true => *id,
            false => operands.next().map_or(*id, |list| list[i]),
        };
        Node { inputs: self.node.inputs.iter().enumerate().map(input).collect(), ..self.node.clone() }
    }
}

struct Copies {
    graph: Graph,
    /// Inputs that are split, with the rows of one part.
    rows: BTreeMap<ValueId, usize>,
    parts: Parts,
}

impl Copies {
    fn widen_inputs(&mut self) {
        let ids = ValueId::all(self.graph.values.len());
        for (id, value) in ids.zip(&mut self.graph.values) {
            let cut = value.class == Class::Input && value.name != STEP_SCALARS;
            if let (true, Some(&rows)) = (cut, value.shape.dims().first()) {
                value.shape = value.shape.with(0, rows * self.parts.own() as usize);
                self.rows.insert(id, rows);
            }
        }
    }

    /// Slices of `inputs` with the rows of part `index`.
    fn slices(
        &mut self,
        index: usize,
        inputs: &[ValueId],
        name: &str,
        nodes: &[Node],
    ) -> BTreeMap<ValueId, ValueId> {
        let mut slices = BTreeMap::new();
        for &id in inputs {
            let len = self.rows[&id];
            let whole = self.graph.value(id).clone();
            let part = Value { shape: whole.shape.with(0, len), ..whole.clone() };
            let copy = self.add(part.clone(), &format!("{name}{}", index + 1));
            let start = index * len;
            let op = Op::Slice { axis: 0, start, len };
            if whole.dtype.is_half() && !whole_words(whole.shape, 0, start, len) {
                // A 32-bit word would hold elements of two parts.
                let wide = Value { dtype: DType::F32, ..whole.clone() };
                let wide_part = Value { dtype: DType::F32, ..part };
                let [wide, wide_part] =
                    [wide, wide_part].map(|value| self.add(value, &format!("{name}{}.f32", index + 1)));
                self.push(Op::Cast(DType::F32), &[id], wide, Phase::Forward, nodes);
                self.push(op, &[wide], wide_part, Phase::Forward, nodes);
                self.push(Op::Cast(whole.dtype), &[wide_part], copy, Phase::Forward, nodes);
            } else {
                self.push(op, &[id], copy, Phase::Forward, nodes);
            }
            slices.insert(id, copy);
        }
        slices
    }

    /// For each label share, one over all parts, times their number: the mean of the parts' losses then
    /// divides by the count of all labels.
    fn label_shares(&mut self, nodes: &[Node], exchanges: &Exchanges) -> BTreeMap<ValueId, ValueId> {
        let mut shares = BTreeMap::new();
        for share in nodes.iter().filter(|node| node.op == Op::LabelShare) {
            // The few operations that produce the labels: views and slices of inputs.
            let mut needed = BTreeSet::from([share.inputs[0]]);
            let mut sources: Vec<&Node> = Vec::new();
            for node in nodes.iter().rev().filter(|node| node.phase == Phase::Forward) {
                if node.outputs.iter().any(|id| needed.contains(id)) {
                    needed.extend(&node.inputs);
                    sources.push(node);
                }
            }
            let mut parts: Vec<ValueId> = (0..self.parts.own() as usize)
                .map(|part| {
                    let rows: Vec<ValueId> =
                        self.rows.keys().copied().filter(|id| needed.contains(id)).collect();
                    let mut now = self.slices(part, &rows, "labels", nodes);
                    for node in sources.iter().rev() {
                        let mut node = (*node).clone();
                        node.inputs.iter_mut().for_each(|id| *id = now.get(id).copied().unwrap_or(*id));
                        for id in &mut node.outputs {
                            let copy =
                                self.add(self.graph.value(*id).clone(), &format!("labels{}", part + 1));
                            now.insert(*id, copy);
                            *id = copy;
                        }
                        self.graph.nodes.push(node);
                    }
                    // Labels that depend on no input are the same in each part.
                    let labels = now.get(&share.inputs[0]).copied().unwrap_or(share.inputs[0]);
                    let (count, mut flat) =
                        (self.graph.value(labels).shape.numel(), self.graph.value(labels).clone());
                    flat.shape = Shape::from([count as usize]);
                    let flat = self.add(flat, "flat");
                    self.push(
                        Op::Reshape(Shape::from([count as usize])),
                        &[labels],
                        flat,
                        Phase::Forward,
                        nodes,
                    );
                    flat
                })
                .collect();
            exchanges.gather_parts(&mut self.graph, vec![&mut parts]);
            let all = self.join(&parts, nodes);
            let one = self.graph.value(share.outputs[0]).clone();
            let [total, scaled] = ["all", "scaled"].map(|suffix| self.add(one.clone(), suffix));
            self.push(Op::LabelShare, &[all], total, Phase::Forward, nodes);
            let times = Op::Unary(Unary::Scale(self.parts.total as f32));
            self.push(times, &[total], scaled, Phase::Forward, nodes);
            shares.insert(share.outputs[0], scaled);
        }
        shares
    }

    fn copy_of(&mut self, id: ValueId, part: u32) -> ValueId {
        self.add(self.graph.value(id).clone(), &format!("part{}", part + 1))
    }

    fn add(&mut self, mut value: Value, suffix: &str) -> ValueId {
        value.name = format!("{}.{suffix}", value.name);
        if value.class == Class::Input {
            value.class = Class::Activation;
            value.indices = None;
        }
        self.graph.add_value(value)
    }

    /// No element of a scalar.
    fn empty(&mut self, scalar: ValueId, nodes: &[Node]) -> ValueId {
        let like = self.graph.value(scalar).clone();
        let [one, none] = [1, 0].map(|len| Value { shape: Shape::from([len]), ..like.clone() });
        let [one, none] = [one, none].map(|value| self.add(value, "none"));
        self.push(Op::Reshape(Shape::from([1])), &[scalar], one, Phase::Backward, nodes);
        self.push(Op::Slice { axis: 0, start: 0, len: 0 }, &[one], none, Phase::Backward, nodes);
        none
    }

    fn emit(&mut self, op: Op, inputs: &[ValueId], nodes: &[Node]) -> ValueId {
        // Named after the newest part: the names of sums of sums would grow with each.
        let name = inputs.last().map_or(String::new(), |newest| self.graph.value(*newest).name.clone());
        let value = Value { name, ..self.graph.value(inputs[0]).clone() };
        let phase = phase_of(&value);
        let output = self.add(value, &format!("sum{}", self.graph.values.len()));
        self.push(op, inputs, output, phase, nodes);
        output
    }

    fn push(&mut self, op: Op, inputs: &[ValueId], output: ValueId, phase: Phase, nodes: &[Node]) {
        let Some(like) = nodes.first() else { return };
        let layer = Arc::from("");
        self.graph.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: vec![output],
            layer,
            phase,
            at: like.at,
        });
    }

    /// Adds values of one shape in all parts, which several ranks have gathered.
    fn sum(&mut self, parts: &[ValueId], shape: Shape, nodes: &[Node]) -> ValueId {
        if self.parts.parallel.ranks == 1 {
            let add = Op::Binary(Binary::Add);
            return parts[1..]
                .iter()
                .fold(parts[0], |sum, &part| self.emit(add.clone(), &[sum, part], nodes));
        }
        let first = add_parts(&mut self.graph, None, parts[0], shape);
        parts[1..].iter().fold(first, |sum, &part| add_parts(&mut self.graph, Some(sum), part, shape))
    }

    fn mean(&mut self, parts: &[ValueId], shape: Shape, nodes: &[Node]) -> ValueId {
        let sum = self.sum(parts, shape, nodes);
        self.emit(Op::Unary(Unary::Scale(1.0 / self.parts.total as f32)), &[sum], nodes)
    }

    fn join(&mut self, parts: &[ValueId], nodes: &[Node]) -> ValueId {
        let dtype = self.graph.value(parts[0]).dtype;
        if dtype.is_half() {
            // A 32-bit word may hold elements of two parts.
            let wide = |copies: &mut Self, &part: &ValueId| {
                let value = Value { dtype: DType::F32, ..copies.graph.value(part).clone() };
                let wide = copies.add(value, "f32");
                copies.push(Op::Cast(DType::F32), &[part], wide, Phase::Forward, nodes);
                wide
            };
            let wide: Vec<ValueId> = parts.iter().map(|part| wide(self, part)).collect();
            let joined = self.join(&wide, nodes);
            let value = Value { dtype, ..self.graph.value(joined).clone() };
            let output = self.add(value, dtype.name());
            self.push(Op::Cast(dtype), &[joined], output, Phase::Forward, nodes);
            return output;
        }
        let mut value = self.graph.value(parts[0]).clone();
        let rows = parts.iter().map(|part| self.graph.value(*part).shape.dims()[0]).sum();
        value.shape = value.shape.with(0, rows);
        let phase = phase_of(&value);
        let output = self.add(value, "parts");
        self.push(Op::Concat { axis: 0 }, parts, output, phase, nodes);
        output
    }
}

fn phase_of(value: &Value) -> Phase {
    if value.class == Class::Gradient { Phase::Backward } else { Phase::Forward }
}
