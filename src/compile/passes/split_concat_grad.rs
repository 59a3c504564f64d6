//! The backward pass of a convolution over joined channels, part by part: neither the joined image nor its gradient is
//! needed as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::graph::{Graph, Node, Op, Phase, Value, ValueId};

/// - `slice(conv2d_input(dy, w))` along channels becomes `conv2d_input(dy, slice(w))`, where all that reads the gradient are
///   such slices.
/// - `conv2d_weight(concat(x₀, x₁, …), dy)` becomes `concat(conv2d_weight(x₀, dy), conv2d_weight(x₁, dy), …)`.
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
    let stays = |id: ValueId| graph.outputs.iter().any(|(_, output)| *output == id);
    let made_by = |id: ValueId| producer.get(&id).map(|&n| &nodes[n]);
    let channels = |node: &Node| matches!(node.op, Op::Slice { axis: 1, .. });
    // Gradients of joined images that are only ever cut up again.
    let cut_up = |node: &Node| {
        let read_in_parts =
            |id: &ValueId| readers.get(id).is_some_and(|read| read.iter().all(|&n| channels(&nodes[n])));
        matches!(node.op, Op::Conv2dInput { groups: 1, .. })
            && node.phase == Phase::Backward
            && node.inputs.len() == 2
            && node.outputs.iter().all(|id| !stays(*id) && read_in_parts(id))
    };
    let mut rewritten = Vec::with_capacity(nodes.len());
    let mut fresh: Vec<Value> = Vec::new();
    let count = graph.values.len();
    let mut add = |value: Value| {
        fresh.push(value);
        ValueId((count + fresh.len() - 1) as u32)
    };
    for node in &nodes {
        if cut_up(node) {
            continue;
        }
        let whole = node.inputs.first().and_then(|id| made_by(*id));
        match (&node.op, whole) {
            (Op::Slice { axis: 1, start, len }, Some(whole)) if cut_up(whole) => {
                let (dy, w) = (whole.inputs[0], whole.inputs[1]);
                let mut value = graph.value(w).clone();
                value.name = format!("{}.slice", graph.value(node.outputs[0]).name);
                value.shape = value.shape.with(1, *len);
                value.class = graph.value(node.outputs[0]).class;
                let part = add(value);
                let slice = Op::Slice { axis: 1, start: *start, len: *len };
                let layer = Arc::clone(&whole.layer);
                let (inputs, outputs) = (vec![w], vec![part]);
                rewritten.push(Node { op: slice, inputs, outputs, layer, ..node.clone() });
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
                        let mut value = graph.value(node.outputs[0]).clone();
                        value.name = format!("{}.of.{}", value.name, graph.value(*x).name);
                        value.shape = value.shape.with(1, graph.value(*x).shape.dims()[1]);
                        let part = add(value);
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
    graph.values.extend(fresh);
    graph.nodes = rewritten;
    graph
}

#[cfg(test)]
mod tests {
    use super::super::tests::differentiated;
    use super::*;
    use crate::graph::{Init, Mode, Params, Trace, Window};

    #[test]
    fn neither_the_joined_image_nor_its_gradient_is_read_as_a_whole() {
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
