//! Ensures that no dispatch binds the same bytes twice: browsers reject overlapping writable bindings, and
//! every binding is writable.

use crate::compile::analysis::Views;
use crate::graph::{Binary, Class, Graph, Node, Op, Unary, ValueId};

/// Rewrites nodes that read one tensor through two operands. Squares and doubles become functions of one
/// operand; other nodes read a copy.
pub(crate) fn dealias_operands(mut graph: Graph, parts: bool) -> Graph {
    let views = Views::of(&graph, parts);
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for mut node in std::mem::take(&mut graph.nodes) {
        if let (Op::Binary(f), [a, b]) = (&node.op, &node.inputs[..])
            && a == b
        {
            let single = match f {
                Binary::Add => Some(Unary::Scale(2.0)),
                Binary::Mul => Some(Unary::Square),
                _ => None,
            };
            if let Some(f) = single {
                node.op = Op::Unary(f);
                node.inputs.truncate(1);
            }
        }
        // A concatenation copies its operands one by one: no dispatch binds two of them.
        let joins = matches!(node.op, Op::Concat { .. });
        while let Some(i) = seen_before(&graph, &views, &node).filter(|_| !joins) {
            let copy = copy_of(&mut graph, node.inputs[i]);
            nodes.push(node.sibling(Op::Copy, vec![node.inputs[i]], vec![copy]));
            node.inputs[i] = copy;
        }
        nodes.push(node);
    }
    graph.nodes = nodes;
    graph
}

/// The first operand that overlaps the bytes of an earlier one.
fn seen_before(graph: &Graph, views: &Views, node: &Node) -> Option<usize> {
    let range = |id: &ValueId| {
        let (root, from) = views.root(*id);
        (root, from, from + graph.value(*id).bytes().max(1))
    };
    let ranges: Vec<_> = node.inputs.iter().map(range).collect();
    (1..ranges.len()).find(|&i| {
        let (root, from, to) = ranges[i];
        ranges[..i].iter().any(|&(other, a, b)| other == root && a < to && from < b)
    })
}

fn copy_of(graph: &mut Graph, id: ValueId) -> ValueId {
    let suffix = format!("copy{}", graph.values.len());
    graph.derive(id, &suffix, |value| {
        if value.class.is_persistent() {
            value.class = Class::Activation;
        }
    })
}
