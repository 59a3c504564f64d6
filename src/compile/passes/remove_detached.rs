//! Once gradients are known, a detached value is its operand.

use crate::graph::{Graph, Op};

/// Reads the operand of each [`Op::Detach`] in place of its result. A result that the host reads is copied: the
/// operand may be a parameter, which changes.
pub(crate) fn remove_detached(mut graph: Graph) -> Graph {
    let mut is = Vec::from_iter(graph.ids().map(|(id, _)| id));
    let mut nodes = std::mem::take(&mut graph.nodes);
    nodes.retain_mut(|node| {
        node.inputs.iter_mut().for_each(|id| *id = is[id.index()]);
        let detached = node.op == Op::Detach;
        let read = detached && graph.outputs.iter().any(|(_, id)| *id == node.outputs[0]);
        if detached && !read {
            is[node.outputs[0].index()] = node.inputs[0];
        } else if read {
            node.op = Op::Copy;
        }
        !detached || read
    });
    graph.nodes = nodes;
    graph
}
