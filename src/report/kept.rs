//! What the backward pass keeps of the forward pass, operation by operation.

use std::collections::BTreeMap;

use super::tensors::own_bytes;
use crate::compile::Plan;
use crate::graph::{Graph, Node, Op, Phase, ValueId};

/// Results of one kind of operation that stay in memory until the backward pass has read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Name of the operation.
    pub op: &'static str,
    /// Number of tensors.
    pub tensors: usize,
    /// Their bytes, padding included.
    pub bytes: u64,
}

/// Forward results that wait for the backward pass, by operation, the most bytes first: those that are there at once where
/// they are most, which is between the two passes, or between those of one part of the step where it has several. What is
/// kept in 16 bits counts as that, under the operation that computed it. Inputs and parameters, which are there in any
/// case, are not among them.
pub fn kept(plan: &Plan) -> Vec<Kept> {
    let graph = plan.graph();
    let root = plan.program.views.roots();
    let mut by_op: BTreeMap<&'static str, Kept> = BTreeMap::new();
    for waiting in most_waiting(plan) {
        let op = computed_by(graph, waiting.node, &root);
        let kept = by_op.entry(op).or_insert(Kept { op, tensors: 0, bytes: 0 });
        kept.tensors += 1;
        kept.bytes += waiting.bytes;
    }
    let mut list: Vec<Kept> = by_op.into_values().collect();
    list.sort_by_key(|kept| (std::cmp::Reverse(kept.bytes), kept.op));
    list
}

/// Bytes of all of them together.
pub fn kept_bytes(plan: &Plan) -> u64 {
    kept(plan).iter().map(|kept| kept.bytes).sum()
}

/// A forward result that the backward pass reads, views of it included.
pub(super) struct Waiting<'a> {
    /// Computes it.
    pub(super) node: &'a Node,
    /// Of its memory.
    pub(super) bytes: u64,
    /// Position at which it is computed.
    pub(super) from: usize,
    /// Position at which the backward pass reads it last.
    pub(super) until: usize,
}

/// All of them, alive together or not.
pub(super) fn waiting(plan: &Plan) -> Vec<Waiting<'_>> {
    let program = &plan.program;
    let root = program.views.roots();
    let mut read = vec![None; program.graph.values.len()];
    let in_order = || program.order.iter().map(|&n| &program.graph.nodes[n]).enumerate();
    for (position, node) in in_order().filter(|(_, node)| node.phase == Phase::Backward) {
        node.inputs.iter().for_each(|id| read[root[id.index()].index()] = Some(position));
    }
    let mut list = Vec::new();
    for (from, node) in in_order().filter(|(_, node)| node.phase == Phase::Forward) {
        for &id in &node.outputs {
            if let (Some(until), Some((_, storage))) = (read[id.index()], program.storage(id)) {
                list.push(Waiting { node, bytes: own_bytes(plan, id, storage), from, until });
            }
        }
    }
    list
}

/// Those that wait together where their bytes are most.
pub(super) fn most_waiting(plan: &Plan) -> Vec<Waiting<'_>> {
    let mut list = waiting(plan);
    let mut change = vec![0i128; plan.program.order.len() + 1];
    for one in &list {
        change[one.from] += i128::from(one.bytes);
        change[one.until] -= i128::from(one.bytes);
    }
    let (mut now, mut most, mut at) = (0, 0, 0);
    for (position, change) in change.iter().enumerate() {
        now += change;
        if now > most {
            (most, at) = (now, position);
        }
    }
    list.retain(|one| one.from <= at && at < one.until);
    list
}

/// The name of a node's operation, or of the one whose result it only stores in another type.
fn computed_by(graph: &Graph, node: &Node, root: &[ValueId]) -> &'static str {
    let packs = matches!(node.op, Op::Cast(dtype) if dtype.is_half());
    let from = packs.then(|| root[node.inputs[0].index()]);
    let producer = from.and_then(|from| graph.nodes.iter().find(|other| other.outputs.contains(&from)));
    producer.unwrap_or(node).op.name()
}
