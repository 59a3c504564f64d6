//! Gradients of slices that together are all of a tensor, written in place.

use std::collections::BTreeMap;

use crate::graph::{Binary, Graph, Node, Op, ValueId};

/// A sum of slices' gradients, each with zeros around it, becomes their concatenation if the slices lie beside each
/// other and cover the tensor: neither zeros nor sums are stored, and the parts may be computed in their places. A
/// sum with zeros changes no number, but makes −0 to +0.
pub(crate) fn join_slice_grads(mut graph: Graph) -> Graph {
    let mut readers = vec![0u32; graph.values.len()];
    let mut producer: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|id| readers[id.index()] += 1);
        producer.extend(node.outputs.iter().map(|id| (*id, n)));
    }
    graph.outputs.iter().for_each(|(_, id)| readers[id.index()] += 1);
    let joined = |node: &Node| -> Option<(usize, Vec<ValueId>)> {
        let sum = node.outputs.first().filter(|_| node.op == Op::Binary(Binary::Add))?;
        let mut parts: Vec<(usize, ValueId)> = Vec::new();
        let (mut along, mut open) = (None, node.inputs.clone());
        while let Some(id) = open.pop() {
            let made = &graph.nodes[*producer.get(&id)?];
            if readers[id.index()] != 1 || graph.value(id).shape != graph.value(*sum).shape {
                return None;
            }
            match made.op {
                Op::Binary(Binary::Add) => open.extend(&made.inputs),
                Op::Place { axis, start, step: 1, .. } if along.is_none_or(|known| known == axis) => {
                    along = Some(axis);
                    parts.push((start, made.inputs[0]));
                }
                _ => return None,
            }
        }
        let axis = along?;
        parts.sort_unstable();
        let mut end = 0;
        for (start, id) in &parts {
            if *start != end {
                return None;
            }
            end += graph.value(*id).shape.dims()[axis];
        }
        let whole = graph.value(*sum).shape.dims()[axis] == end;
        whole.then(|| (axis, parts.into_iter().map(|(_, id)| id).collect()))
    };
    // A sum within a larger one that is joined is left without readers, as are its operands.
    let found: Vec<Option<(usize, Vec<ValueId>)>> = graph.nodes.iter().map(joined).collect();
    for (node, found) in graph.nodes.iter_mut().zip(found) {
        if let Some((axis, parts)) = found {
            *node = node.sibling(Op::Concat { axis }, parts, node.outputs.clone());
        }
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::super::eliminate_dead_code;
    use super::super::tests::differentiated;
    use super::*;
    use crate::graph::{Init, Mode, Params, Trace};

    fn joins(slices: &[std::ops::Range<usize>]) -> usize {
        let params = Params::new(0);
        let w = params.add("w", [6, 3], Init::Constant(0.5));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let x = trace.param(&w).exp();
            let parts = slices.iter().map(|range| x.slice(0, range.clone()).square().sum(&[]));
            parts.reduce(|sum, part| sum.add(&part)).expect("slices")
        });
        let graph = eliminate_dead_code(join_slice_grads(differentiated(graph.expect("valid"))));
        graph.nodes.iter().filter(|node| matches!(node.op, Op::Concat { .. })).count()
    }

    #[test]
    fn slices_that_cover_a_tensor_have_one_concatenation_as_gradient() {
        assert_eq!(joins(&[0..2, 2..3, 3..6]), 1);
        for apart in [&[0..2, 3..6][..], &[0..2, 2..5], &[0..3, 2..6], &[0..6, 0..6]] {
            assert_eq!(joins(apart), 0, "{apart:?}");
        }
    }
}
