//! Dead code elimination.

use crate::graph::{Graph, Node};

/// Drops nodes without readers of their results. Nodes that change an operand in place stay.
pub(crate) fn eliminate_dead_code(mut graph: Graph) -> Graph {
    let mut read = vec![false; graph.values.len()];
    graph.outputs.iter().for_each(|(_, id)| read[id.index()] = true);
    let mut nodes: Vec<Node> = Vec::new();
    for node in std::mem::take(&mut graph.nodes).into_iter().rev() {
        if !node.op.mutates().is_empty() || node.outputs.iter().any(|id| read[id.index()]) {
            node.inputs.iter().for_each(|id| read[id.index()] = true);
            nodes.push(node);
        }
    }
    nodes.reverse();
    graph.nodes = nodes;
    graph
}
