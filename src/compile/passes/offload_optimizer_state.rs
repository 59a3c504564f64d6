//! Selects the optimizer state that is stored in host memory between its updates.

use crate::graph::{Class, Graph, Op};

/// Marks optimizer state of at least `smallest` bytes that only updates read, each of its own elements.
pub(crate) fn offload_optimizer_state(mut graph: Graph, smallest: u64) -> Graph {
    let mut uses = vec![0; graph.values.len()];
    let mut updates = vec![0; graph.values.len()];
    for node in &graph.nodes {
        for id in &node.inputs {
            uses[id.index()] += 1;
            updates[id.index()] += u32::from(matches!(node.op, Op::Update { .. }));
        }
    }
    for (_, id) in &graph.outputs {
        uses[id.index()] += 1;
    }
    for (i, value) in graph.values.iter_mut().enumerate() {
        let large = value.class == Class::Optimizer && value.bytes() >= smallest;
        value.offloaded = large && uses[i] > 0 && uses[i] == updates[i];
    }
    graph
}
