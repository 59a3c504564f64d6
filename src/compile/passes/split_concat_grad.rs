//! Splits the backward pass of a convolution over concatenated channels into parts: neither the concatenated
//! image nor its gradient is needed as a whole.

use std::collections::BTreeMap;

use crate::graph::{Graph, Node, Op, Phase, ValueId};

/// - `slice(conv2d_input(dy, w))` along channels becomes `conv2d_input(dy, slice(w))`, if only such slices
///   read the gradient.
/// - `conv2d_weight(concat(x₀, x₁, …), dy)` becomes a concatenation of `conv2d_weight(x₀, dy)`,
///   `conv2d_weight(x₁, dy)`, ….
///
/// Each element is the sum of the same products.
pub(crate) fn split_concat_grad(mut graph: Graph) -> Graph {
    let nodes = std::mem::take(&mut graph.nodes);
    let made = |(n, node): (usize, &Node)| node.outputs.iter().map(|id| (*id, n)).collect::<Vec<_>>();
    let producer: BTreeMap<ValueId, usize> = nodes.iter().enumerate().flat_map(made).collect();
    let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (n, node) in nodes.iter().enumerate() {
        node.inputs.iter().for_each(|id| readers.entry(*id).or_default().push(n));
    }
    let outputs: Vec<ValueId> = graph.outputs.iter().map(|(_, id)| *id).collect();
    let stays = |id: ValueId| outputs.contains(&id);
    let made_by = |id: ValueId| producer.get(&id).map(|&n| &nodes[n]);
    let channels = |node: &Node| matches!(node.op, Op::Slice { axis: 1, .. });
    // Gradients of concatenated images that are read only as slices.
    let cut_up = |node: &Node| {
        let read_in_parts =
            |id: &ValueId| readers.get(id).is_some_and(|read| read.iter().all(|&n| channels(&nodes[n])));
        matches!(node.op, Op::Conv2dInput { groups: 1, .. })
            && node.phase == Phase::Backward
            && node.inputs.len() == 2
            && node.outputs.iter().all(|id| !stays(*id) && read_in_parts(id))
    };
    let mut rewritten = Vec::with_capacity(nodes.len());
    for node in &nodes {
        if cut_up(node) {
            continue;
        }
        let whole = node.inputs.first().and_then(|id| made_by(*id));
        match (&node.op, whole) {
            (Op::Slice { axis: 1, start, len }, Some(whole)) if cut_up(whole) => {
                let (dy, w) = (whole.inputs[0], whole.inputs[1]);
                let shape = graph.value(w).shape.with(1, *len);
                let part = graph.derive(node.outputs[0], "slice", |value| value.shape = shape);
                let slice = Op::Slice { axis: 1, start: *start, len: *len };
                rewritten.push(whole.sibling(slice, vec![w], vec![part]));
                rewritten.push(Node {
                    inputs: vec![dy, part],
                    outputs: node.outputs.clone(),
                    ..whole.clone()
                });
            }
            (Op::Conv2dWeight { groups: 1, .. }, Some(Node { op: Op::Concat { axis: 1 }, inputs, .. })) => {
                let parts: Vec<ValueId> = inputs
                    .iter()
                    .map(|x| {
                        let of = graph.value(*x);
                        let (suffix, channels) = (format!("of.{}", of.name), of.shape.dims()[1]);
                        let part = graph.derive(node.outputs[0], &suffix, |value| {
                            value.shape = value.shape.with(1, channels);
                        });
                        let inputs = vec![*x, node.inputs[1]];
                        rewritten.push(Node { inputs, outputs: vec![part], ..node.clone() });
                        part
                    })
                    .collect();
                rewritten.push(Node { op: Op::Concat { axis: 1 }, inputs: parts, ..node.clone() });
            }
            _ => rewritten.push(node.clone()),
        }
    }
    graph.nodes = rewritten;
    graph
}

#[cfg(test)]
mod tests {
    use super::super::tests::differentiated;
    use super::*;
    use crate::graph::{Init, Mode, Params, Trace, Window};

    #[test]
    fn backward_pass_reads_neither_the_concat_nor_its_gradient_as_a_whole() {
        let params = Params::new(0);
        let [a, b] = ["a", "b"].map(|name| params.add(name, [3, 2, 3, 3], Init::Constant(0.1)));
        let join = params.add("join", [4, 6, 3, 3], Init::Constant(0.1));
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let x = trace.input("x", [2, 2, 8, 8]);
            let [a, b, join] = [&a, &b, &join].map(|param| trace.param(param));
            let same = Window::square(3).padding(1);
            let both = x.conv2d(&a, None, same, 1).concat(&[&x.conv2d(&b, None, same, 1)], 1);
            both.conv2d(&join, None, same, 1).square().sum(&[])
        })
        .expect("valid");
        let graph = differentiated(graph);
        let count = |graph: &Graph, name: &str| graph.nodes.iter().filter(|n| n.op.name() == name).count();
        let whole: Vec<usize> =
            ["conv2d_input", "conv2d_weight", "slice"].iter().map(|name| count(&graph, name)).collect();
        let parts = split_concat_grad(graph);
        assert_eq!(whole, [1, 3, 2]);
        assert_eq!(["conv2d_input", "conv2d_weight", "slice"].map(|name| count(&parts, name)), [2, 4, 2]);
        let backward = parts.nodes.iter().filter(|node| node.phase == Phase::Backward);
        let channels = |id: &ValueId| parts.value(*id).shape.dims().get(1).copied();
        let joined = parts.nodes.iter().find(|node| node.op.name() == "concat").expect("forward").outputs[0];
        assert_eq!(channels(&joined), Some(6));
        assert!(backward.clone().all(|node| !node.inputs.contains(&joined)));
        assert!(parts.nodes.iter().all(|node| node.inputs.iter().all(|id| id.index() < parts.values.len())));
    }
}
