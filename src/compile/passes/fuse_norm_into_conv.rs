//! Fuses a batch norm into the convolutions that read it: its result is not materialized.

use crate::graph::{Graph, Node, Op, Source, ValueId};

/// - The gradient of a convolution's weight reads the norm's operand, which the norm's own gradient needs
///   anyway.
/// - With `forward`, convolutions do so too if nothing else reads the norm's result. Each element is then
///   normalized once per tap and tile of channels instead of once. On CPU adapters that costs more than a
///   pass over memory.
///
/// The same numbers are multiplied in the same order.
pub(crate) fn fuse_norm_into_conv(mut graph: Graph, forward: bool) -> Graph {
    let mut norm: Vec<Option<usize>> = vec![None; graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        if matches!(node.op, Op::BatchNorm(_)) {
            norm[node.outputs[0].index()] = Some(n);
        }
    }
    // Norms with readers other than convolutions.
    let mut held = vec![false; graph.values.len()];
    graph.outputs.iter().for_each(|(_, id)| held[id.index()] = true);
    for node in &graph.nodes {
        let source = usize::from(reads_through(&node.op));
        node.inputs.iter().skip(source).for_each(|id| held[id.index()] = true);
    }
    let nodes = graph.nodes.clone();
    let norm_of = |id: ValueId| norm[id.index()].map(|n| &nodes[n]);
    for node in &mut graph.nodes {
        let backward = matches!(node.op, Op::Conv2dWeight { .. });
        let Some(&source) = node.inputs.first().filter(|_| reads_through(&node.op)) else { continue };
        if let Some(Node { op: Op::BatchNorm(activation), inputs, .. }) = norm_of(source)
            && (backward || (forward && !held[source.index()]))
        {
            match &mut node.op {
                Op::Conv2d { source, .. } => *source = Source::Normed(*activation),
                Op::Conv2dWeight { normed, .. } => *normed = Some(*activation),
                _ => continue,
            }
            node.inputs[0] = inputs[0];
            node.inputs.splice(2..2, inputs[1..].iter().copied());
        }
    }
    super::eliminate_dead_code(graph)
}

/// Whether the first operand could be read through a norm.
fn reads_through(op: &Op) -> bool {
    matches!(op, Op::Conv2d { source: Source::Tensor, .. } | Op::Conv2dWeight { normed: None, .. })
}

#[cfg(test)]
mod tests {
    use super::super::tests::differentiated;
    use super::*;
    use crate::graph::{Init, Mode, Params, Trace, Window};

    /// Two convolutions with a norm between them. If `shared`, a sum reads the norm as well.
    fn graph(shared: bool) -> Graph {
        let params = Params::new(0);
        let [a, b] = ["a", "b"].map(|name| params.add(name, [2, 2, 3, 3], Init::Constant(0.1)));
        let [gamma, beta] = ["gamma", "beta"].map(|name| params.add(name, [2], Init::Constant(1.0)));
        let same = Window::square(3).padding(1);
        let graph = Trace::record(&params, Mode::Train, "loss", |trace| {
            let [a, b, gamma, beta] = [&a, &b, &gamma, &beta].map(|param| trace.param(param));
            let x = trace.input("x", [2, 2, 5, 5]).conv2d(&a, None, same, 1);
            let x = x.batch_norm_train(&gamma, &beta, 1e-5, None);
            let y = x.conv2d(&b, None, same, 1);
            if shared { y.add(&x) } else { y }.square().sum(&[])
        });
        differentiated(graph.expect("valid"))
    }

    fn through(graph: &Graph) -> Vec<&'static str> {
        let normed = |node: &&Node| {
            matches!(
                node.op,
                Op::Conv2d { source: Source::Normed(_), .. } | Op::Conv2dWeight { normed: Some(_), .. }
            )
        };
        graph.nodes.iter().filter(normed).map(|node| node.op.name()).collect()
    }

    #[test]
    fn norm_read_only_by_convolutions_is_not_materialized() {
        let norms = |graph: &Graph| graph.nodes.iter().filter(|n| n.op.name() == "batch_norm").count();
        let fused = fuse_norm_into_conv(graph(false), true);
        assert_eq!((through(&fused), norms(&fused)), (vec!["conv2d", "conv2d_weight"], 0));
        for (shared, forward) in [(false, false), (true, true), (true, false)] {
            let fused = fuse_norm_into_conv(graph(shared), forward);
            assert_eq!((through(&fused), norms(&fused)), (vec!["conv2d_weight"], 1), "{shared} {forward}");
        }
    }
}
