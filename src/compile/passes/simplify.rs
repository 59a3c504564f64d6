//! Exact rewrites of a traced graph that save memory or passes over memory. They run before differentiation.

use crate::graph::{Activation, Graph, Node, Op, Unary};

/// - ReLU and ReLU6 after a batch norm become part of it: the backward pass then needs neither result.
/// - A max-pool of a ReLU becomes the ReLU of the max-pool. Both are monotone, so results and gradients are
///   the same, and the large ReLU's result is not kept.
pub(crate) fn simplify(mut graph: Graph) -> Graph {
    let mut readers = vec![0u32; graph.values.len()];
    for node in &graph.nodes {
        node.inputs.iter().for_each(|id| readers[id.index()] += 1);
    }
    graph.observed().for_each(|id| readers[id.index()] += 1);
    let mut producer: Vec<Option<usize>> = vec![None; graph.values.len()];
    let mut nodes: Vec<Option<Node>> = Vec::new();
    for mut node in std::mem::take(&mut graph.nodes) {
        let before =
            node.inputs.first().and_then(|id| producer[id.index()].filter(|_| readers[id.index()] == 1));
        let activation = match node.op {
            Op::Unary(Unary::Relu) => Some(Activation::Relu),
            Op::Unary(Unary::Clamp(lo, hi)) if lo == 0.0 && hi == 6.0 => Some(Activation::Relu6),
            _ => None,
        };
        if let (Some(activation), Some(i)) = (activation, before)
            && let Some(norm) = nodes[i].as_mut().filter(|n| n.op == Op::BatchNorm(Activation::None))
        {
            norm.op = Op::BatchNorm(activation);
            norm.outputs = node.outputs;
            producer[norm.outputs[0].index()] = Some(i);
            continue;
        }
        if let (Op::MaxPool2d(_), Some(i)) = (&node.op, before)
            && let Some(relu) = nodes[i].take_if(|n| n.op == Op::Unary(Unary::Relu))
        {
            let result = node.outputs[0];
            let pooled = graph.derive(result, "pooled", |_| ());
            producer.push(Some(nodes.len()));
            readers.push(1);
            node.inputs = relu.inputs.clone();
            node.outputs[0] = pooled;
            producer[node.outputs[1].index()] = Some(nodes.len());
            nodes.push(Some(node));
            producer[result.index()] = Some(nodes.len());
            nodes.push(Some(Node { inputs: vec![pooled], outputs: vec![result], ..relu }));
            continue;
        }
        node.outputs.iter().for_each(|id| producer[id.index()] = Some(nodes.len()));
        nodes.push(Some(node));
    }
    graph.nodes = nodes.into_iter().flatten().collect();
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Mode, Params, Trace, Window};

    #[test]
    fn relu_moves_after_the_pool_only_without_other_readers() {
        for shared in [false, true] {
            let graph = Trace::record(&Params::new(0), Mode::Train, "y", |trace| {
                let relu = trace.input("x", [1, 2, 4, 4]).relu();
                let pooled = relu.max_pool2d(Window::square(2).stride(2)).sum(&[]);
                if shared { pooled.add(&relu.sum(&[])) } else { pooled }
            });
            let names: Vec<&str> = simplify(graph.unwrap()).nodes.iter().map(|n| n.op.name()).collect();
            let expected = if shared { ["relu", "max_pool2d"] } else { ["max_pool2d", "relu"] };
            assert_eq!(names[..2], expected);
        }
    }
}
