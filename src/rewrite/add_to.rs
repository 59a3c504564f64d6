//! Gradients that are added where they are made: a sum needs no memory for its second term.

use std::collections::BTreeMap;

use crate::graph::{Binary, Graph, Node, Op, Phase, ValueId};

/// The sum of an image's gradient through a convolution and of another gradient becomes part of the convolution, which
/// adds its results to the other's memory: where a skip connection ends, where two branches began. Each element is the same
/// sum, rounded once.
pub(crate) fn add_to(mut graph: Graph) -> Graph {
    let mut readers = vec![0u32; graph.values.len()];
    let mut maker: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|id| readers[id.index()] += 1);
        maker.extend(node.outputs.iter().map(|id| (*id, n)));
    }
    graph.outputs.iter().for_each(|(_, id)| readers[id.index()] += 1);
    let mut nodes: Vec<Option<Node>> = std::mem::take(&mut graph.nodes).into_iter().map(Some).collect();
    for n in 0..nodes.len() {
        let Some(Node { op: Op::Binary(Binary::Add), inputs, outputs, phase: Phase::Backward, .. }) =
            &nodes[n]
        else {
            continue;
        };
        let (terms, result) = ([inputs[0], inputs[1]], outputs[0]);
        let shape = graph.value(result).shape;
        if !terms.iter().all(|id| graph.value(*id).shape == shape && maker.contains_key(id)) {
            continue;
        }
        // Of two the later: the other is there by then.
        let mut made: Vec<(usize, ValueId)> = terms.iter().map(|id| (maker[id], *id)).collect();
        made.sort_unstable_by(|a, b| b.cmp(a));
        let joins = |&&(at, id): &&(usize, ValueId)| {
            let convolution = nodes[at].as_ref().is_some_and(|node| {
                matches!(node.op, Op::Conv2dInput { adds: false, .. }) && node.inputs.len() == 2
            });
            convolution && readers[id.index()] == 1
        };
        let Some(&(at, own)) = made.iter().find(joins) else { continue };
        let earlier = if terms[0] == own { terms[1] } else { terms[0] };
        let Some(mut node) = nodes[at].take() else { continue };
        if let Op::Conv2dInput { adds, .. } = &mut node.op {
            *adds = true;
        }
        node.inputs.push(earlier);
        node.outputs = vec![result];
        nodes[n] = Some(node);
        maker.insert(result, n);
    }
    graph.nodes = nodes.into_iter().flatten().collect();
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autodiff::differentiate;
    use crate::graph::{Init, Mode, Params, Trace, Window};

    #[test]
    fn gradients_of_branches_are_added_where_the_later_one_is_made() {
        let params = Params::new(0);
        let [a, b, c] = ["a", "b", "c"].map(|name| params.add(name, [2, 2, 3, 3], Init::Constant(0.1)));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let same = |x: &crate::graph::Tensor, w| {
                x.conv2d(&trace.param(w), None, Window::square(3).padding(1), 1)
            };
            let x = same(&trace.input("x", [2, 2, 5, 5]), &a).relu();
            let (left, right) = (same(&x, &b), same(&x, &c));
            left.mul(&right).add(&x).sum(&[])
        });
        let graph = graph.expect("valid");
        let loss = graph.outputs[0].1;
        let (trace, gradients) = differentiate(graph, loss).expect("a scalar");
        let ids: Vec<ValueId> = gradients.pairs.iter().filter_map(|(_, gradient)| gradient.id()).collect();
        let mut graph = trace.finish().expect("valid");
        graph.outputs.extend(ids.into_iter().enumerate().map(|(i, id)| (format!("gradient {i}"), id)));
        let adds = |graph: &Graph| {
            let backward = graph.nodes.iter().filter(|node| node.phase == Phase::Backward);
            backward.filter(|node| node.op.name() == "add").count()
        };
        let before = adds(&graph);
        let merged = add_to(graph);
        let adding = |node: &&Node| matches!(node.op, Op::Conv2dInput { adds: true, .. });
        assert_eq!((before, adds(&merged)), (2, 0));
        assert_eq!(merged.nodes.iter().filter(adding).count(), 2);
        // Operands are made before they are read.
        let mut made: Vec<ValueId> = Vec::new();
        for node in &merged.nodes {
            let own = node.inputs.iter().filter(|id| merged.nodes.iter().any(|n| n.outputs.contains(id)));
            assert!(own.into_iter().all(|id| made.contains(id)), "{}", node.op.name());
            made.extend(&node.outputs);
        }
    }
}
