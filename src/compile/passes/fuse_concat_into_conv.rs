//! Fuses a concatenation of two tensors into the convolutions that read it: its result is not materialized.

use crate::graph::{Graph, Node, Op, Source, ValueId};

/// Convolutions read the two operands of a concatenation along channels directly, if nothing else reads it.
/// The same numbers are multiplied in the same order.
pub(crate) fn fuse_concat_into_conv(mut graph: Graph) -> Graph {
    let mut join: Vec<Option<[ValueId; 2]>> = vec![None; graph.values.len()];
    for Node { op, inputs, outputs, .. } in &graph.nodes {
        if let (Op::Concat { axis: 1 }, [a, b]) = (op, &inputs[..])
            && a != b
        {
            join[outputs[0].index()] = Some([*a, *b]);
        }
    }
    graph.outputs.iter().for_each(|(_, id)| join[id.index()] = None);
    for node in &graph.nodes {
        let source = usize::from(reads_through(&node.op));
        node.inputs.iter().skip(source).for_each(|id| join[id.index()] = None);
    }
    for node in graph.nodes.iter_mut().filter(|node| reads_through(&node.op)) {
        if let (Some([first, second]), Op::Conv2d { source, .. }) =
            (join[node.inputs[0].index()], &mut node.op)
        {
            *source = Source::Joined;
            node.inputs[0] = first;
            node.inputs.push(second);
        }
    }
    super::eliminate_dead_code(graph)
}

/// Whether the first operand could be read in parts.
fn reads_through(op: &Op) -> bool {
    matches!(op, Op::Conv2d { groups: 1, source: Source::Tensor, .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Init, Mode, Params, Trace, Window};

    #[test]
    fn concat_read_only_by_convolutions_is_not_materialized() {
        for shared in [false, true] {
            let params = Params::new(0);
            let [a, b] = ["a", "b"].map(|name| params.add(name, [2, 5, 3, 3], Init::Constant(0.1)));
            let graph = Trace::record(&params, Mode::Train, "y", |trace| {
                let [x, y] = [3, 2].map(|c| trace.input(&format!("x{c}"), [2, c, 5, 5]));
                let both = x.concat(&[&y], 1);
                let [a, b] = [&a, &b].map(|param| {
                    both.conv2d(&trace.param(param), None, Window::square(3).padding(1), 1).sum(&[])
                });
                let sum = a.add(&b);
                if shared { sum.add(&both.sum(&[])) } else { sum }
            });
            let graph = fuse_concat_into_conv(graph.expect("valid"));
            let count = |name: &str| graph.nodes.iter().filter(|n| n.op.name() == name).count();
            let joined = |node: &&Node| matches!(node.op, Op::Conv2d { source: Source::Joined, .. });
            let (wanted, joins) = if shared { (0, 1) } else { (2, 0) };
            assert_eq!((graph.nodes.iter().filter(joined).count(), count("concat")), (wanted, joins));
        }
    }
}
