//! What the backward pass keeps of the forward pass, operation by operation.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Graph, Node, Op, Phase, ValueId};
use crate::plan::{Plan, Storage};

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

/// Forward results that the backward pass reads, by operation, the most bytes first; what is kept in 16 bits counts as
/// that, under the operation that computed it. Inputs and parameters, which are there in any case, are not among them.
pub fn kept(plan: &Plan) -> Vec<Kept> {
    let graph = plan.graph();
    let root = plan.program.views.roots();
    let mut by_op: BTreeMap<&'static str, Kept> = BTreeMap::new();
    for (node, storage) in kept_values(plan) {
        let op = computed_by(graph, node, &root);
        let kept = by_op.entry(op).or_insert(Kept { op, tensors: 0, bytes: 0 });
        kept.tensors += 1;
        kept.bytes += storage.bytes;
    }
    let mut list: Vec<Kept> = by_op.into_values().collect();
    list.sort_by_key(|kept| (std::cmp::Reverse(kept.bytes), kept.op));
    list
}

/// Each forward result that the backward pass reads, views of it included: the operation that computes it, and its
/// memory.
pub(super) fn kept_values(plan: &Plan) -> impl Iterator<Item = (&Node, &Storage)> {
    let program = &plan.program;
    let root = program.views.roots();
    let backward = program.graph.nodes.iter().filter(|node| node.phase == Phase::Backward);
    let read: BTreeSet<ValueId> = backward.flat_map(|n| &n.inputs).map(|id| root[id.index()]).collect();
    let forward = program.graph.nodes.iter().filter(|node| node.phase == Phase::Forward);
    let results = forward.flat_map(|node| node.outputs.iter().map(move |id| (node, *id)));
    let kept = results.filter(move |(_, id)| read.contains(id));
    kept.filter_map(|(node, id)| program.storage(id).map(|(_, storage)| (node, storage)))
}

/// Bytes of all of them together.
pub fn kept_bytes(plan: &Plan) -> u64 {
    kept(plan).iter().map(|kept| kept.bytes).sum()
}

/// The name of a node's operation, or of the one whose result it only stores in another type.
fn computed_by(graph: &Graph, node: &Node, root: &[ValueId]) -> &'static str {
    let packs = matches!(node.op, Op::Cast(dtype) if dtype.is_half());
    let from = packs.then(|| root[node.inputs[0].index()]);
    let producer = from.and_then(|from| graph.nodes.iter().find(|other| other.outputs.contains(&from)));
    producer.unwrap_or(node).op.name()
}
