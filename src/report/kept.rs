//! Tensors that the forward pass saves for the backward pass, by operation.

use std::collections::BTreeMap;

use super::tensors::own_bytes;
use crate::compile::Plan;
use crate::graph::{Graph, Node, Op, Phase, ValueId};

/// Results of one kind of operation that are saved for the backward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Name of the operation.
    pub op: &'static str,
    /// Number of tensors.
    pub tensors: usize,
    /// Their bytes, padding included.
    pub bytes: u64,
}

/// Returns the forward results saved for the backward pass, by operation, in descending order of bytes.
/// Counted are the results alive together at the position where their bytes are largest: between the two
/// passes, or between the two passes of one part if the step has several parts. A result saved in 16 bits
/// counts with its 16-bit size, under the operation that computed it. Inputs and parameters are resident in
/// any case and are not counted.
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

/// Returns the total bytes of the results that [`kept()`] returns.
pub fn kept_bytes(plan: &Plan) -> u64 {
    kept(plan).iter().map(|kept| kept.bytes).sum()
}

/// A forward result that the backward pass reads, views of it included.
pub(super) struct Waiting<'a> {
    /// The node that computes it.
    pub(super) node: &'a Node,
    /// Bytes of its memory.
    pub(super) bytes: u64,
    /// Position at which it is computed.
    pub(super) from: usize,
    /// Position at which the backward pass reads it last.
    pub(super) until: usize,
}

/// Returns all results saved for the backward pass, alive together or not.
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

/// Returns the saved results alive at the position where their total bytes are largest.
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

/// Returns the name of a node's operation. For a cast to fewer bits, returns the name of the operation that produced its
/// operand.
fn computed_by(graph: &Graph, node: &Node, root: &[ValueId]) -> &'static str {
    let packs = matches!(node.op, Op::Cast(dtype) | Op::Quantise { dtype, .. } if dtype.is_packed());
    let from = packs.then(|| root[node.inputs[0].index()]);
    let producer = from.and_then(|from| graph.nodes.iter().find(|other| other.outputs.contains(&from)));
    producer.unwrap_or(node).op.name()
}
