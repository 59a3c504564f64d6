//! Tensor parallelism: several ranks compute a layer together, each with a part of its parameters (Shoeybi et al. 2019).
//!
//! A pair of products is split: the weight of the first by columns, that of the second by rows. What lies between them,
//! elementwise functions and attention by heads, is split as well. The results of the second product are summed over the
//! ranks, and so are the gradients of what enters the first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::compile::Parallel;
use crate::dtype::{DType, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::{Attend, Class, Graph, Node, Op, PartOf, Value, ValueId};
use crate::shape::Shape;

/// Splits what can be split over the ranks of `parallel`; with `among`, parameters alone that are split there.
///
/// # Errors
/// [`Error::Setting`] if that is nothing.
pub(crate) fn split_layers(mut graph: Graph, parallel: Parallel, among: Option<&Graph>) -> Result<Graph> {
    let Split { lengths: splits, ops, exits, .. } = Splitter::new(&graph, parallel, among).regions();
    if !exits.contains(&true) {
        let message = format!(
            "tensor {0}: no layer can be split over {0} ranks. That takes two products with elementwise functions or attention \
             between them, weights in 16 or 32 bits, and numbers of columns and heads that are multiples of {0}",
            parallel.tensor
        );
        return Err(Error::setting("parallel.tensor", message));
    }
    for (value, lengths) in graph.values.iter_mut().zip(&splits) {
        let Some(lengths) = lengths else { continue };
        let whole = value.shape;
        value.shape = lengths.local(whole, parallel.tensor).unwrap_or(whole);
        if value.class == Class::Parameter {
            let (pitch, ranks) = (lengths.0[0], u64::from(parallel.tensor));
            let (run, rank) = (pitch / ranks, u64::from(parallel.rank));
            value.part_of = Some(PartOf { first: rank * run, run, pitch, whole });
        }
    }
    let mut entries: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for (n, mut node) in std::mem::take(&mut graph.nodes).into_iter().enumerate() {
        let Some(op) = &ops[n] else {
            graph.nodes.push(node);
            continue;
        };
        node.op = op.clone();
        let mut inputs = std::mem::take(&mut node.inputs);
        for id in &mut inputs {
            // Entries are not split.
            let split = splits.get(id.index()).is_some_and(Option::is_some);
            if split || graph.value(*id).dtype != DType::F32 {
                continue;
            }
            // What all ranks have: each computes a part of its gradient.
            let of = *id;
            *id = *entries.entry(of).or_insert_with(|| {
                let entry = graph.derive(of, "entry", |_| ());
                let op = Op::SumRanks { of_gradient: true };
                graph.nodes.push(node.sibling(op, vec![of], vec![entry]));
                entry
            });
        }
        node.inputs = inputs;
        if exits[n] {
            let result = node.outputs[0];
            let part = graph.derive(result, "of_rank", |_| ());
            node.outputs[0] = part;
            let sum = node.sibling(Op::SumRanks { of_gradient: false }, vec![part], vec![result]);
            graph.nodes.extend([node, sum]);
        } else {
            graph.nodes.push(node);
        }
    }
    Ok(graph)
}

/// How the elements of a value, row-major, are dealt to the ranks: they are cut into pieces of these lengths, over and over,
/// and each rank has its part of each piece. Most have one length; queries, keys and values in one tensor have three.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lengths(Vec<u64>);

impl Lengths {
    fn of(lengths: &[u64]) -> Self {
        let equal = lengths.iter().all(|length| *length == lengths[0]);
        Self(if equal { vec![lengths[0]] } else { lengths.to_vec() })
    }

    fn times(&self, factor: u64) -> Self {
        Self(self.0.iter().map(|length| length * factor).collect())
    }

    fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The axis that is split, and the elements of one of its indices.
    fn axis(&self, shape: Shape) -> Option<(usize, u64)> {
        let mut inner = 1;
        for (axis, &dim) in shape.dims().iter().enumerate().rev() {
            let extent = inner * dim as u64;
            if extent > 0 && extent.is_multiple_of(self.sum()) {
                return Some((axis, inner));
            }
            inner = extent;
        }
        None
    }

    /// The shape of each rank's part; `None` if it would cut what belongs together.
    fn local(&self, shape: Shape, ranks: u32) -> Option<Shape> {
        let (axis, inner) = self.axis(shape)?;
        let ranks = u64::from(ranks);
        let whole = self.0.iter().all(|length| length.is_multiple_of(ranks * inner));
        whole.then(|| shape.with(axis, shape.dims()[axis] / ranks as usize))
    }

    /// Whether no rank has a part of one of these groups of consecutive elements.
    fn keeps(&self, group: u64, ranks: u32) -> bool {
        self.0.iter().all(|length| length.is_multiple_of(group * u64::from(ranks)))
    }
}

/// Two products are of low rank if what is between them has less than one part in this many of their operands and results.
const LOW_RANK: u64 = 4;

/// What is split together.
#[derive(Default)]
struct Region {
    splits: Vec<(ValueId, Lengths)>,
    /// The nodes, as a rank computes them.
    ops: Vec<(usize, Op)>,
    /// Values that all ranks have, of which its nodes read all.
    whole: Vec<ValueId>,
    /// The product whose result is summed over the ranks.
    exit: usize,
}

/// Regions that go together, by value and by node.
struct Split {
    lengths: Vec<Option<Lengths>>,
    whole: Vec<bool>,
    ops: Vec<Option<Op>>,
    exits: Vec<bool>,
}

impl Split {
    fn new(graph: &Graph) -> Self {
        let (values, nodes) = (graph.values.len(), graph.nodes.len());
        Self {
            lengths: vec![None; values],
            whole: vec![false; values],
            ops: vec![None; nodes],
            exits: vec![false; nodes],
        }
    }

    /// Adds a region, unless it splits a value in another way. Returns whether it did.
    fn join(&mut self, region: &Region) -> bool {
        let same = |(id, lengths): &(ValueId, Lengths)| {
            let known = self.lengths[id.index()].as_ref();
            !self.whole[id.index()]
                && !region.whole.contains(id)
                && known.is_none_or(|known| known == lengths)
        };
        let joins = region.splits.iter().all(same)
            && region.whole.iter().all(|id| self.lengths[id.index()].is_none());
        if joins {
            for (id, lengths) in &region.splits {
                self.lengths[id.index()] = Some(lengths.clone());
            }
            for (n, op) in &region.ops {
                self.ops[*n] = Some(op.clone());
            }
            region.whole.iter().for_each(|id| self.whole[id.index()] = true);
            self.exits[region.exit] = true;
        }
        joins
    }
}

struct Splitter<'a> {
    graph: &'a Graph,
    ranks: u32,
    rank: u32,
    /// The node that computes each value.
    producer: Vec<Option<usize>>,
    /// The nodes that read each value.
    readers: Vec<Vec<usize>>,
    /// What is read beside the nodes.
    observed: Vec<bool>,
    /// Parameters whose elements can be dealt to the ranks.
    parameters: Vec<bool>,
}

impl<'a> Splitter<'a> {
    fn new(graph: &'a Graph, parallel: Parallel, among: Option<&Graph>) -> Self {
        let count = graph.values.len();
        let (mut producer, mut readers) = (vec![None; count], vec![Vec::new(); count]);
        for (n, node) in graph.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|id| producer[id.index()] = Some(n));
            node.inputs.iter().for_each(|id| readers[id.index()].push(n));
        }
        let mut observed = vec![false; count];
        graph.observed().for_each(|id| observed[id.index()] = true);
        let dealt = |name: &str| {
            let param = graph.parameters.iter().find(|param| param.name() == name);
            let split = |value: &Value| value.part_of.is_some() && value.name == name;
            among.is_none_or(|among| among.values.iter().any(split))
                && param.is_some_and(|param| {
                    let coded = param.stored_as(WeightStorage::F32).is_quantised();
                    !param.is_buffer() && !param.is_cache() && !coded
                })
        };
        let parameter = |value: &Value| value.class == Class::Parameter && dealt(&value.name);
        let parameters = graph.values.iter().map(parameter).collect();
        let Parallel { tensor: ranks, rank, .. } = parallel;
        Self { graph, ranks, rank, producer, readers, observed, parameters }
    }

    /// All regions that go together.
    fn regions(&self) -> Split {
        let mut found: Vec<Region> = (0..self.graph.nodes.len()).filter_map(|n| self.region(n)).collect();
        // Of regions that do not go together, the one with the most parameters is split: a layer, not its adapter.
        let dealt = |(id, _): &(ValueId, Lengths)| {
            if self.parameters[id.index()] { self.graph.value(*id).shape.numel() } else { 0 }
        };
        found.sort_by_cached_key(|region| Reverse(region.splits.iter().map(dealt).sum::<u64>()));
        loop {
            let mut all = Split::new(self.graph);
            let joined: Vec<bool> = found.iter().map(|region| all.join(region)).collect();
            // Whatever is split, all that read it know.
            let closed = |(id, _): &(ValueId, Lengths)| {
                let readers = &self.readers[id.index()];
                !self.observed[id.index()] && readers.iter().all(|n| all.ops[*n].is_some())
            };
            let open = |region: &Region| !region.splits.iter().all(closed);
            let open: Vec<bool> =
                joined.iter().zip(&found).map(|(joined, region)| *joined && open(region)).collect();
            if !open.contains(&true) {
                return all;
            }
            // Without these, others may go together.
            let mut open = open.into_iter();
            found.retain(|_| open.next() != Some(true));
        }
    }

    /// What is split if node `exit` multiplies parts of rows by parts of columns.
    fn region(&self, exit: usize) -> Option<Region> {
        let node = &self.graph.nodes[exit];
        let Op::MatMul { ta: false, tb, then: None } = node.op else { return None };
        let [left, weight] = [node.inputs[0], node.inputs[1]];
        let [rows, columns] = self.weight(weight)?;
        let inner = if tb { columns } else { rows };
        let mut region = Region { exit, whole: vec![node.outputs[0]], ..Region::default() };
        region.ops.push((exit, node.op.clone()));
        let of_weight = if tb { inner } else { rows * columns };
        let mut wanted = vec![(left, Lengths::of(&[inner])), (weight, Lengths::of(&[of_weight]))];
        while let Some((id, lengths)) = wanted.pop() {
            match region.splits.iter().find(|(known, _)| *known == id) {
                Some((_, known)) if *known == lengths => continue,
                Some(_) => return None,
                None => {}
            }
            lengths.local(self.graph.value(id).shape, self.ranks)?;
            region.splits.push((id, lengths.clone()));
            if self.parameters[id.index()] {
                // Parts of a parameter are runs of one length.
                if lengths.0.len() > 1 {
                    return None;
                }
                continue;
            }
            let n = self.producer[id.index()]?;
            let op = self.split(n, &lengths, &mut region, &mut wanted)?;
            region.ops.push((n, op));
        }
        // Without a first product there is nothing to split: all ranks have its operand.
        let product = |(n, op): &&(usize, Op)| *n != exit && matches!(op, Op::MatMul { .. });
        let first: Vec<usize> = region.ops.iter().filter(product).map(|(n, _)| *n).collect();
        // The ranks add up the result and the gradients of what enters: far more than they split, where products are of low rank.
        let elements = |id: ValueId| self.graph.value(id).shape.numel();
        let entering = first.iter().map(|&n| elements(self.graph.nodes[n].inputs[0])).min()?;
        (elements(left) * LOW_RANK >= entering.min(elements(node.outputs[0]))).then_some(region)
    }

    /// Rows and columns of a weight as it is stored.
    fn weight(&self, id: ValueId) -> Option<[u64; 2]> {
        let [rows, columns] = *self.graph.value(id).shape.dims() else { return None };
        self.parameters[id.index()].then_some([rows as u64, columns as u64])
    }

    /// How a rank computes its part of the first result of a node. Notes how its operands and other results are split then.
    fn split(
        &self,
        n: usize,
        lengths: &Lengths,
        region: &mut Region,
        wanted: &mut Vec<(ValueId, Lengths)>,
    ) -> Option<Op> {
        let Node { op, inputs, outputs, .. } = &self.graph.nodes[n];
        let (ranks, shape) = (self.ranks, |id: ValueId| self.graph.value(id).shape);
        let result = shape(outputs[0]);
        let (local, mut own) = (lengths.local(result, ranks)?, op.clone());
        let part = |count: usize| count / ranks as usize;
        // The operands of which each rank has all.
        let whole = match op {
            Op::MatMul { ta: false, tb, then: None } => {
                let [rows, columns] = self.weight(inputs[1])?;
                let (of_a_column, all) = if *tb { (columns, rows) } else { (1, columns) };
                if !all.is_multiple_of(lengths.sum()) {
                    return None;
                }
                wanted.push((inputs[1], lengths.times(of_a_column)));
                &inputs[..1]
            }
            Op::Unary(_) | Op::Copy => {
                wanted.push((inputs[0], lengths.clone()));
                &[]
            }
            Op::Reshape(_) => {
                wanted.push((inputs[0], lengths.clone()));
                own = Op::Reshape(local);
                &[]
            }
            Op::Binary(_) => {
                // All elements, or rows that are repeated; of a number each rank has all.
                for &id in inputs.iter().filter(|id| shape(**id).numel() != 1) {
                    let operand = shape(id);
                    let lead = operand.dims().iter().take_while(|dim| **dim == 1).count();
                    let rows = result.dims().ends_with(&operand.dims()[lead..]);
                    if !rows || !operand.numel().is_multiple_of(lengths.sum()) {
                        return None;
                    }
                    wanted.push((id, lengths.clone()));
                }
                region.whole.extend(inputs.iter().filter(|id| shape(**id).numel() == 1));
                &[]
            }
            Op::Slice { axis, start, len } => {
                let (inner, block) = (result.strides()[*axis], lengths.sum());
                let all = shape(inputs[0]).dims()[*axis];
                if [*start, *len, all].iter().any(|count| !(*count as u64 * inner).is_multiple_of(block)) {
                    return None;
                }
                wanted.push((inputs[0], lengths.clone()));
                // An index may hold several pieces, or a piece several indices.
                if lengths.axis(result)?.0 == *axis {
                    own = Op::Slice { axis: *axis, start: part(*start), len: part(*len) };
                }
                &[]
            }
            Op::Rotary { .. } | Op::RowNorm { .. } if !lengths.keeps(result.last() as u64, ranks) => {
                return None;
            }
            // All heads, or those of whole pieces: of queries and keys, without values.
            Op::Rotary { heads, rope, back }
                if lengths.0.len() == 1 && ((heads * result.last()) as u64).is_multiple_of(lengths.sum()) =>
            {
                wanted.push((inputs[0], lengths.clone()));
                own = Op::Rotary { heads: part(*heads), rope: *rope, back: *back };
                &[]
            }
            Op::RowNorm { .. } => {
                let (statistics, columns) = (shape(outputs[1]).last() as u64, result.last() as u64);
                let of_rows = lengths.0.iter().map(|length| length / columns * statistics);
                region.splits.push((outputs[1], Lengths::of(&of_rows.collect::<Vec<_>>())));
                wanted.push((inputs[0], lengths.clone()));
                &inputs[1..]
            }
            Op::Attention(attend) => {
                let shapes: Vec<Shape> = inputs.iter().map(|id| shape(*id)).collect();
                let sizes = attend.sizes(&shapes[..attend.operands()]).ok()?;
                let [queries, keys] = [sizes.heads, sizes.kv_heads].map(|heads| (heads * sizes.size) as u64);
                if !sizes.kv_heads.is_multiple_of(ranks as usize) || *lengths != Lengths::of(&[queries]) {
                    return None;
                }
                region.splits.push((outputs[1], Lengths::of(&[(sizes.heads * sizes.rows) as u64])));
                let operands = match attend.packed {
                    Some(_) => vec![Lengths::of(&[queries, keys, keys])],
                    None => vec![Lengths::of(&[queries]), Lengths::of(&[keys]), Lengths::of(&[keys])],
                };
                wanted.extend(inputs.iter().copied().zip(operands));
                let packed = attend.packed.map(|both| both.map(part));
                let heads_of = Some([self.rank as usize * part(sizes.heads), sizes.heads]);
                own = Op::Attention(Attend { packed, heads_of, ..*attend });
                &[]
            }
            _ => return None,
        };
        region.whole.extend(whole);
        Some(own)
    }
}
