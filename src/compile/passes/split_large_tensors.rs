//! Splits a tensor larger than a binding along the batch, if every operation on it works sample by sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::graph::{Graph, Node, Op, ValueId};
use crate::shape::Shape;

/// Inputs with the batch as their first dimension; `None` if samples depend on each other.
fn batched(op: &Op) -> Option<&'static [usize]> {
    match op {
        Op::Conv2d { .. }
        | Op::Conv2dInput { .. }
        | Op::Unary(_)
        | Op::MaxPool2d(_)
        | Op::AvgPool2d(_)
        | Op::Resample { .. }
        | Op::BatchNorm(_) => Some(&[0]),
        Op::Binary(_) => Some(&[0, 1]),
        _ => None,
    }
}

/// Rewrites operations on tensors of more than `max` bytes as operations on parts of the batch. If that is
/// not possible, the graph is unchanged, and planning reports the tensor.
pub(crate) fn split_large_tensors(graph: Graph, max: u64) -> Graph {
    match Split::new(&graph, max) {
        Some(split) => split.run(graph),
        None => graph,
    }
}

/// Parts have at most this fraction, 1/4, of the maximum size: several share a buffer without much unused
/// memory.
const QUARTERS: u64 = 4;

struct Split {
    /// First row of each part, and the end.
    cuts: Vec<usize>,
    /// Whether each node reads or writes a large tensor.
    inside: Vec<bool>,
    parts: BTreeMap<ValueId, Vec<ValueId>>,
}

impl Split {
    /// `None` if nothing is too large, or if a large tensor belongs to an operation that does not work sample
    /// by sample.
    fn new(graph: &Graph, max: u64) -> Option<Self> {
        let large = |id: &ValueId| graph.value(*id).bytes() > max;
        let touches = |node: &Node| node.inputs.iter().chain(&node.outputs).any(large);
        let inside: Vec<bool> = graph.nodes.iter().map(touches).collect();
        let (mut batch, mut rows) = (None, usize::MAX);
        for (node, _) in graph.nodes.iter().zip(&inside).filter(|(_, inside)| **inside) {
            let result = graph.value(node.outputs[0]);
            let n = *result.shape.dims().first()?;
            let same = |&i: &usize| {
                let shape = graph.value(node.inputs[i]).shape;
                shape.dims().first() == Some(&n)
                    && (node.inputs.len() > 1 || shape.rank() == result.shape.rank())
            };
            let equal = !matches!(node.op, Op::Binary(_))
                || node.inputs.iter().all(|id| graph.value(*id).shape == result.shape);
            if *batch.get_or_insert(n) != n || !batched(&node.op)?.iter().all(same) || !equal {
                return None;
            }
            for id in node.inputs.iter().chain(&node.outputs).filter(|id| large(id)) {
                let one = graph.value(*id).bytes() / n as u64;
                if one > max {
                    return None;
                }
                rows = rows.min((max / QUARTERS / one).max(1) as usize);
            }
        }
        let stays = graph.observed().any(|id| large(&id));
        let batch = batch.filter(|_| !stays)?;
        let count = batch.div_ceil(rows);
        let cuts = (0..=count).map(|i| i * batch / count).collect();
        Some(Self { cuts, inside, parts: BTreeMap::new() })
    }

    fn run(mut self, mut graph: Graph) -> Graph {
        let nodes = std::mem::take(&mut graph.nodes);
        let inside = std::mem::take(&mut self.inside);
        for (node, inside) in nodes.into_iter().zip(inside) {
            if inside { self.node(&mut graph, &node) } else { graph.nodes.push(node) }
        }
        graph
    }

    fn node(&mut self, graph: &mut Graph, node: &Node) {
        let batched = batched(&node.op).unwrap_or_default();
        let inputs: Vec<Option<Vec<ValueId>>> = (0..node.inputs.len())
            .map(|i| batched.contains(&i).then(|| self.parts_of(graph, node, node.inputs[i])))
            .collect();
        let results: Vec<Vec<ValueId>> = (0..self.cuts.len() - 1)
            .map(|part| {
                let own = |(i, id): (usize, &ValueId)| inputs[i].as_ref().map_or(*id, |parts| parts[part]);
                let inputs: Vec<ValueId> = node.inputs.iter().enumerate().map(own).collect();
                let mut outputs = vec![self.new_part(graph, node.outputs[0], part)];
                if let Some(places) = node.outputs.get(1) {
                    // Indices of the maxima, four per word.
                    let words = graph.value(outputs[0]).shape.numel().div_ceil(4) as usize;
                    outputs.push(add_part(graph, *places, part, Shape::from([words])));
                }
                graph.nodes.push(Node { inputs, outputs: outputs.clone(), ..node.clone() });
                outputs
            })
            .collect();
        let first: Vec<ValueId> = results.iter().map(|outputs| outputs[0]).collect();
        self.parts.insert(node.outputs[0], first.clone());
        // Dead code if no node reads the whole tensor.
        let outputs = vec![node.outputs[0]];
        graph.nodes.push(Node { op: Op::Concat { axis: 0 }, inputs: first, outputs, ..node.clone() });
    }

    /// The parts of a value: the parts it was computed in, or slices.
    fn parts_of(&mut self, graph: &mut Graph, node: &Node, id: ValueId) -> Vec<ValueId> {
        if let Some(parts) = self.parts.get(&id) {
            return parts.clone();
        }
        let parts: Vec<ValueId> = (0..self.cuts.len() - 1)
            .map(|part| {
                let (start, end) = (self.cuts[part], self.cuts[part + 1]);
                let output = self.new_part(graph, id, part);
                let op = Op::Slice { axis: 0, start, len: end - start };
                let layer = Arc::clone(&node.layer);
                graph.nodes.push(Node { op, inputs: vec![id], outputs: vec![output], layer, ..node.clone() });
                output
            })
            .collect();
        self.parts.insert(id, parts.clone());
        parts
    }

    fn new_part(&self, graph: &mut Graph, id: ValueId, part: usize) -> ValueId {
        let rows = self.cuts[part + 1] - self.cuts[part];
        let shape = graph.value(id).shape.with(0, rows);
        add_part(graph, id, part, shape)
    }
}

fn add_part(graph: &mut Graph, id: ValueId, part: usize, shape: Shape) -> ValueId {
    graph.derive(id, &format!("part{}", part + 1), |value| value.shape = shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Mode, Params, Trace, Window};

    #[test]
    fn large_tensors_are_split_and_others_are_not() {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", |trace| {
            let w = trace.input("w", [4, 2, 3, 3]);
            let x = trace.input("x", [5, 2, 6, 6]).conv2d(&w, None, Window::square(3).padding(1), 1).relu();
            x.max_pool2d(Window::square(2).stride(2)).sum(&[])
        });
        let graph = crate::compile::passes::simplify(graph.unwrap());
        assert_eq!(split_large_tensors(graph.clone(), 5 * 4 * 36 * 4).nodes.len(), graph.nodes.len());
        let parts = crate::compile::passes::eliminate_dead_code(split_large_tensors(graph, 2 * 4 * 36 * 4));
        let count = |name: &str| parts.nodes.iter().filter(|n| n.op.name() == name).count();
        assert_eq!(["slice", "conv2d", "max_pool2d", "concat", "relu"].map(count), [5, 5, 5, 1, 1]);
        let largest = parts.nodes.iter().flat_map(|n| &n.outputs).map(|id| parts.value(*id).bytes()).max();
        assert!(largest <= Some(1152));
    }

    #[test]
    fn indivisible_operations_are_not_split() {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", |trace| {
            trace.input("x", [5, 2, 6, 6]).square().sum(&[])
        });
        let graph = graph.unwrap();
        assert_eq!(split_large_tensors(graph.clone(), 300).nodes.len(), graph.nodes.len());
    }
}
