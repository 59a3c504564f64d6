//! Tensor parallelism: several ranks compute a layer together, each with a part of its parameters (Shoeybi et al. 2019).
//!
//! A pair of products is split: the weight of the first by columns, that of the second by rows. What lies between them,
//! elementwise functions and attention by heads, is split as well. The results of the second product are summed over the
//! ranks, and so are the gradients of what enters the first.

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::Parallel;
use crate::dtype::{DType, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::{Attend, Class, Graph, Node, Op, PartOf, ValueId};
use crate::shape::Shape;

/// Splits what can be split over the ranks of `parallel`; with `among`, parameters alone that are split there.
///
/// # Errors
/// [`Error::Setting`] if that is nothing.
pub(crate) fn split_layers(mut graph: Graph, parallel: Parallel, among: Option<&Graph>) -> Result<Graph> {
    let Region { splits, ops, exits, .. } = Splitter::new(&graph, parallel, among).regions();
    if exits.is_empty() {
        let message = format!(
            "tensor {0}: no layer can be split over {0} ranks. That takes two products with elementwise functions or attention \
             between them, and numbers of columns and heads that are multiples of {0}",
            parallel.tensor
        );
        return Err(Error::setting("parallel.tensor", message));
    }
    for (id, lengths) in &splits {
        let value = &mut graph.values[id.index()];
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
        let Some(op) = ops.get(&n) else {
            graph.nodes.push(node);
            continue;
        };
        node.op = op.clone();
        let mut inputs = std::mem::take(&mut node.inputs);
        for id in &mut inputs {
            if splits.contains_key(id) || graph.value(*id).dtype != DType::F32 {
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
        if exits.contains(&n) {
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

/// What is split together.
#[derive(Default)]
struct Region {
    splits: BTreeMap<ValueId, Lengths>,
    /// The nodes, as a rank computes them.
    ops: BTreeMap<usize, Op>,
    /// Values that all ranks have, of which its nodes read all.
    whole: BTreeSet<ValueId>,
    /// The products whose results are summed over the ranks.
    exits: BTreeSet<usize>,
}

impl Region {
    /// Adds another region, unless they split a value in different ways. Returns whether it did.
    fn join(&mut self, other: &Self) -> bool {
        let same = |(id, lengths): (&ValueId, &Lengths)| {
            !self.whole.contains(id) && self.splits.get(id).is_none_or(|known| known == lengths)
        };
        let joins = other.splits.iter().all(same)
            && !other.whole.iter().any(|id| self.splits.contains_key(id) || other.splits.contains_key(id));
        if joins {
            self.splits.extend(other.splits.iter().map(|(id, lengths)| (*id, lengths.clone())));
            self.ops.extend(other.ops.iter().map(|(n, op)| (*n, op.clone())));
            self.whole.extend(&other.whole);
            self.exits.extend(&other.exits);
        }
        joins
    }
}

struct Splitter<'a> {
    graph: &'a Graph,
    ranks: u32,
    rank: u32,
    producer: BTreeMap<ValueId, usize>,
    /// The nodes that read a value; `None` for what is read beside the nodes.
    readers: BTreeMap<ValueId, BTreeSet<Option<usize>>>,
    /// Parameters whose elements can be dealt to the ranks.
    parameters: BTreeSet<ValueId>,
}

impl<'a> Splitter<'a> {
    fn new(graph: &'a Graph, parallel: Parallel, among: Option<&Graph>) -> Self {
        let mut producer: BTreeMap<ValueId, usize> = BTreeMap::new();
        let mut readers: BTreeMap<ValueId, BTreeSet<Option<usize>>> = BTreeMap::new();
        for (n, node) in graph.nodes.iter().enumerate() {
            producer.extend(node.outputs.iter().map(|id| (*id, n)));
            for id in &node.inputs {
                readers.entry(*id).or_default().insert(Some(n));
            }
        }
        for id in graph.observed() {
            readers.entry(id).or_default().insert(None);
        }
        let dealt = graph.parameters.iter().filter(|param| {
            !param.is_buffer() && !param.is_cache() && !param.stored_as(WeightStorage::F32).is_quantised()
        });
        let mut dealt: BTreeSet<&str> = dealt.map(|param| param.name()).collect();
        if let Some(among) = among {
            let split = among.values.iter().filter(|value| value.part_of.is_some());
            let split: BTreeSet<&str> = split.map(|value| &*value.name).collect();
            dealt.retain(|name| split.contains(name));
        }
        let parameter = |id: &ValueId| {
            let value = graph.value(*id);
            value.class == Class::Parameter && dealt.contains(&*value.name)
        };
        let parameters = ValueId::all(graph.values.len()).filter(parameter).collect();
        Self { graph, ranks: parallel.tensor, rank: parallel.rank, producer, readers, parameters }
    }

    /// The union of all regions that go together.
    fn regions(&self) -> Region {
        let mut found: Vec<Region> = (0..self.graph.nodes.len()).filter_map(|n| self.region(n)).collect();
        loop {
            let mut all = Region::default();
            let joined: Vec<bool> = found.iter().map(|region| all.join(region)).collect();
            // Whatever is split, all that read it know.
            let closed = |region: &Region| {
                let mut readers = region.splits.keys().filter_map(|id| self.readers.get(id)).flatten();
                readers.all(|reader| reader.is_some_and(|n| all.ops.contains_key(&n)))
            };
            let open = joined.iter().zip(&found).map(|(joined, region)| *joined && !closed(region));
            let open: Vec<bool> = open.collect();
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
        let Shape2 { rows, columns } = self.weight(weight)?;
        let inner = if tb { columns } else { rows };
        let mut region = Region::default();
        region.ops.insert(exit, node.op.clone());
        region.exits.insert(exit);
        region.whole.insert(node.outputs[0]);
        let mut wanted = vec![(left, Lengths::of(&[inner]))];
        wanted.push((weight, Lengths::of(&[if tb { inner } else { rows * columns }])));
        while let Some((id, lengths)) = wanted.pop() {
            match region.splits.get(&id) {
                Some(known) if *known == lengths => continue,
                Some(_) => return None,
                None => {}
            }
            lengths.local(self.graph.value(id).shape, self.ranks)?;
            region.splits.insert(id, lengths.clone());
            if self.parameters.contains(&id) {
                // Parts of a parameter are runs of one length.
                if lengths.0.len() > 1 {
                    return None;
                }
                continue;
            }
            let n = *self.producer.get(&id)?;
            let op = self.split(n, &lengths, &mut region, &mut wanted)?;
            region.ops.insert(n, op);
        }
        // Without a first product there is nothing to split: all ranks have its operand.
        let product = |(n, op): (&usize, &Op)| *n != exit && matches!(op, Op::MatMul { .. });
        region.ops.iter().any(product).then_some(region)
    }

    fn weight(&self, id: ValueId) -> Option<Shape2> {
        let [rows, columns] = *self.graph.value(id).shape.dims() else { return None };
        self.parameters.contains(&id).then_some(Shape2 { rows: rows as u64, columns: columns as u64 })
    }

    /// How a rank computes its part of the first result of a node. Notes how the operands are split then.
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
        let local = lengths.local(result, ranks)?;
        let rest = match op {
            Op::MatMul { ta: false, tb, then: None } => {
                let Shape2 { rows, columns } = self.weight(inputs[1])?;
                let (of_a_column, all) = if *tb { (columns, rows) } else { (1, columns) };
                if !all.is_multiple_of(lengths.sum()) {
                    return None;
                }
                wanted.push((inputs[1], lengths.times(of_a_column)));
                &inputs[..1]
            }
            Op::Unary(_) | Op::Reshape(_) | Op::Copy => {
                wanted.push((inputs[0], lengths.clone()));
                &inputs[1..]
            }
            Op::Binary(_) => {
                for &id in inputs {
                    let own = shape(id);
                    // Rows that are repeated, or all elements.
                    let repeats = result.numel().is_multiple_of(own.numel().max(1))
                        && own.numel().is_multiple_of(lengths.sum());
                    let lead = own.dims().iter().take_while(|dim| **dim == 1).count();
                    let trailing = result.dims().ends_with(&own.dims()[lead..]);
                    match own.numel() {
                        1 => drop(region.whole.insert(id)),
                        _ if repeats && trailing => wanted.push((id, lengths.clone())),
                        _ => return None,
                    }
                }
                &[]
            }
            Op::Slice { axis, start, len } => {
                let (inner, block) = (result.strides()[*axis], lengths.sum());
                let whole = |count: usize| (count as u64 * inner).is_multiple_of(block);
                let periods = whole(*start) && whole(*len) && whole(shape(inputs[0]).dims()[*axis]);
                if !periods {
                    return None;
                }
                wanted.push((inputs[0], lengths.clone()));
                // An index may hold several pieces, or a piece several indices.
                let split = lengths.axis(result)?.0 == *axis;
                let part = |count: usize| if split { count / ranks as usize } else { count };
                region.ops.insert(n, Op::Slice { axis: *axis, start: part(*start), len: part(*len) });
                &[]
            }
            Op::Rotary { .. } | Op::RowNorm { .. } if !lengths.keeps(result.last() as u64, ranks) => {
                return None;
            }
            Op::Rotary { heads, rope, back } if *heads == result.dims()[2] => {
                wanted.push((inputs[0], lengths.clone()));
                let op = Op::Rotary { heads: local.dims()[2], rope: *rope, back: *back };
                region.ops.insert(n, op);
                &[]
            }
            Op::RowNorm { .. } => {
                let (statistics, columns) = (shape(outputs[1]).last() as u64, result.last() as u64);
                let of_rows = lengths.0.iter().map(|length| length / columns * statistics);
                region.splits.insert(outputs[1], Lengths::of(&of_rows.collect::<Vec<_>>()));
                wanted.push((inputs[0], lengths.clone()));
                &inputs[1..]
            }
            Op::Attention(attend) => {
                let heads = self.heads(attend, inputs, lengths)?;
                region.splits.insert(outputs[1], Lengths::of(&[heads.queries * heads.rows]));
                let [queries, keys] = [heads.queries, heads.keys].map(|count| count * heads.size);
                let operands = match attend.packed {
                    Some(_) => vec![Lengths::of(&[queries, keys, keys])],
                    None => vec![Lengths::of(&[queries]), Lengths::of(&[keys]), Lengths::of(&[keys])],
                };
                wanted.extend(inputs.iter().copied().zip(operands));
                let part = |heads: usize| heads / ranks as usize;
                let packed = attend.packed.map(|both| both.map(part));
                let all = heads.queries as usize;
                let heads_of = Some([self.rank as usize * part(all), all]);
                region.ops.insert(n, Op::Attention(Attend { packed, heads_of, ..*attend }));
                &[]
            }
            _ => return None,
        };
        region.whole.extend(rest);
        let op = region.ops.get(&n).unwrap_or(op);
        Some(match op {
            Op::Reshape(_) => Op::Reshape(local),
            op => op.clone(),
        })
    }

    /// The heads of an attention that can be split.
    fn heads(&self, attend: &Attend, inputs: &[ValueId], lengths: &Lengths) -> Option<Heads> {
        let shapes: Vec<Shape> = inputs.iter().map(|id| self.graph.value(*id).shape).collect();
        let sizes = attend.sizes(&shapes[..attend.operands()]).ok()?;
        let [queries, keys, size, rows] =
            [sizes.heads, sizes.kv_heads, sizes.size, sizes.rows].map(|size| size as u64);
        let divided =
            keys.is_multiple_of(u64::from(self.ranks)) && *lengths == Lengths::of(&[queries * size]);
        divided.then_some(Heads { queries, keys, size, rows })
    }
}

/// Rows and columns of a weight as it is stored.
struct Shape2 {
    rows: u64,
    columns: u64,
}

struct Heads {
    queries: u64,
    keys: u64,
    size: u64,
    rows: u64,
}
