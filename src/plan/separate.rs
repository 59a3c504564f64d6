//! No dispatch binds the same bytes twice: browsers refuse overlapping writable bindings, and every binding is writable.

use std::panic::Location;
use std::sync::Arc;

use crate::error::Result;
use crate::graph::{Binary, Graph, Node, Op, Unary, Value, ValueId};

/// Rewrites nodes that read one tensor through two operands: squares and doubles become functions of one operand,
/// others read a copy.
pub(super) fn separate(mut graph: Graph) -> Result<Graph> {
    let mut roots: Vec<ValueId> = (0..graph.values.len() as u32).map(ValueId).collect();
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for mut node in std::mem::take(&mut graph.nodes) {
        if let (Op::Reshape(_), [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
            roots[to.index()] = roots[from.index()];
        }
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
        // Parts of a join are copied one by one: no dispatch sees two of them.
        let joins = matches!(node.op, Op::Concat { .. });
        while let Some(i) = seen_before(&roots, &node).filter(|_| !joins) {
            let copy = copy_of(&mut graph, node.inputs[i]);
            roots.push(copy);
            nodes.push(Node {
                op: Op::Copy,
                inputs: vec![node.inputs[i]],
                outputs: vec![copy],
                layer: Arc::clone(&node.layer),
                phase: node.phase,
                at: Location::caller(),
            });
            node.inputs[i] = copy;
        }
        nodes.push(node);
    }
    graph.nodes = nodes;
    Ok(graph)
}

/// The first operand over the same memory as an earlier one.
fn seen_before(roots: &[ValueId], node: &Node) -> Option<usize> {
    let roots: Vec<ValueId> = node.inputs.iter().map(|id| roots[id.index()]).collect();
    (1..roots.len()).find(|&i| roots[..i].contains(&roots[i]))
}

fn copy_of(graph: &mut Graph, id: ValueId) -> ValueId {
    let copy = ValueId(graph.values.len() as u32);
    let mut value: Value = graph.value(id).clone();
    value.name = format!("{}.copy{}", value.name, copy.0);
    if value.class.is_persistent() || value.class == crate::graph::Class::Input {
        value.class = crate::graph::Class::Activation;
    }
    graph.values.push(value);
    copy
}
