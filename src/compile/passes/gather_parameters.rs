//! Sharded parameters: each rank has a share of them, and gathers the others' for the operations that read them.

use std::collections::{BTreeMap, BTreeSet};

use super::buckets::SharedBucket;
use super::exchange::{order_exchanges, receive};
use super::share_updates::send_shares;
use crate::compile::Parallel;
use crate::graph::{Class, Graph, Node, Op, Phase, Sharded, Value, ValueId};

/// Buckets of parameters that a device has as a whole at once, of those that are trained and of frozen ones: the one that
/// operations read, and the one before.
pub(crate) const WHOLE: usize = 2;

/// The same within the forward pass, and within the backward pass. A layer whose rows are computed in pieces reads its weights
/// once for each piece: three matrices of a gated unit would be gathered for every piece.
const WHOLE_IN_A_PASS: usize = 4;

/// The gathers of a step with sharded parameters; of another step, none.
#[derive(Debug)]
pub(crate) struct Gathers {
    pub buckets: Vec<SharedBucket>,
    pub parallel: Parallel,
}

impl Gathers {
    /// Returns the graph with its parameters gathered ([`gather_parameters`]) and all exchanges in order.
    pub(crate) fn added_to(&self, mut graph: Graph) -> Graph {
        if !self.buckets.is_empty() {
            gather_parameters(&mut graph, &self.buckets, self.parallel);
            order_exchanges(&mut graph);
        }
        graph
    }

    /// The most bytes of parameters that are whole at once.
    pub(crate) fn whole_bytes(&self) -> u64 {
        let of = |trained| self.buckets.iter().filter(move |bucket| bucket.trained == trained);
        let largest = |trained| of(trained).map(|bucket| self.bytes(bucket)).max().unwrap_or(0);
        WHOLE as u64 * (largest(true) + largest(false))
    }

    /// Bytes of parameters that other ranks have.
    pub(crate) fn elsewhere_bytes(&self) -> u64 {
        let ranks = u64::from(self.parallel.ranks);
        self.buckets.iter().map(|bucket| self.bytes(bucket) / ranks * (ranks - 1)).sum()
    }

    fn bytes(&self, bucket: &SharedBucket) -> u64 {
        4 * bucket.words(bucket.share * u64::from(self.parallel.ranks))
    }
}

/// Replaces the parameters of `buckets` with this rank's shares, which are updated. Other operations read copies of the
/// whole. A bucket is sent an exchange ahead, received before the first operation that reads it, and received again if [`WHOLE`]
/// others of its kind, trained or frozen, were read since, or [`WHOLE_IN_A_PASS`] within the same pass.
fn gather_parameters(graph: &mut Graph, buckets: &[SharedBucket], parallel: Parallel) {
    let nodes = std::mem::take(&mut graph.nodes);
    let readers = Readers::of(&nodes, buckets);
    let gathers = readers.gathers(&nodes, buckets);
    let shares: Vec<Vec<_>> =
        buckets.iter().map(|bucket| bucket.shares(graph, parallel.rank).collect()).collect();
    let name = |&(id, before): &(ValueId, u64)| (graph.value(id).name.clone(), before);
    let sharded = buckets.iter().map(|bucket| Sharded {
        parameters: bucket.parameters.iter().map(name).collect(),
        share: bucket.share,
        dtype: bucket.dtype,
    });
    graph.sharded = sharded.collect();
    let mut wholes: BTreeMap<ValueId, Value> = BTreeMap::new();
    for &(id, share) in shares.iter().flatten() {
        let value = &mut graph.values[id.index()];
        let name = format!("{}.whole", value.name);
        wholes.insert(id, Value { name, class: Class::Workspace, ..value.clone() });
        value.keep_share(share);
    }
    let send = |graph: &mut Graph, gather: Option<&(usize, usize)>| {
        gather.map(|&(_, i)| send_shares(graph, &buckets[i], &shares[i], parallel, |_| None))
    };
    let mut sent = send(graph, gathers.first());
    let mut next = 0;
    let mut copies: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for (n, node) in nodes.into_iter().enumerate() {
        while let (Some(&(at, i)), Some(exchange)) = (gathers.get(next), sent)
            && at == n
        {
            next += 1;
            sent = send(graph, gathers.get(next));
            for &(id, before) in &buckets[i].parameters {
                let copy = receive(graph, (exchange, buckets[i].words(before)), wholes[&id].clone());
                copies.insert(id, copy);
            }
        }
        if !readers.is_view(&node) {
            readers.read_copies(graph, node, &copies);
        }
    }
}

/// Which values are parameters of buckets, or reshapes of these.
struct Readers {
    parameter: BTreeMap<ValueId, ValueId>,
    bucket: BTreeMap<ValueId, usize>,
}

impl Readers {
    fn of(nodes: &[Node], buckets: &[SharedBucket]) -> Self {
        let numbered = buckets.iter().enumerate();
        let bucket: BTreeMap<ValueId, usize> =
            numbered.flat_map(|(i, bucket)| bucket.parameters.iter().map(move |(id, _)| (*id, i))).collect();
        let mut readers = Self { parameter: bucket.keys().map(|id| (*id, *id)).collect(), bucket };
        for node in nodes.iter().filter(|node| matches!(node.op, Op::Reshape(_))) {
            if let Some(&parameter) = readers.parameter.get(&node.inputs[0]) {
                readers.parameter.insert(node.outputs[0], parameter);
            }
        }
        readers
    }

    fn is_view(&self, node: &Node) -> bool {
        matches!(node.op, Op::Reshape(_)) && self.parameter.contains_key(&node.inputs[0])
    }

    /// Each bucket that is to be received, and the index of the node that reads it next, in the order of nodes.
    fn gathers(&self, nodes: &[Node], buckets: &[SharedBucket]) -> Vec<(usize, usize)> {
        // The buckets of each kind, those read last in front, each with the pass that read it.
        let mut read: [Vec<(usize, Phase)>; 2] = Default::default();
        let mut gathers = Vec::new();
        for (n, node) in nodes.iter().enumerate() {
            if self.is_view(node) || matches!(node.op, Op::Update { .. }) {
                continue;
            }
            let parameters = node.inputs.iter().filter_map(|id| self.parameter.get(id));
            for i in parameters.map(|id| self.bucket[id]).collect::<BTreeSet<_>>() {
                let read = &mut read[usize::from(buckets[i].trained)];
                let at = read.iter().position(|&(other, _)| other == i);
                let phase = at.map(|at| read.remove(at).1);
                let most = if phase == Some(node.phase) { WHOLE_IN_A_PASS } else { WHOLE };
                if at.is_none_or(|at| at >= most) {
                    gathers.push((n, i));
                }
                read.insert(0, (i, node.phase));
                read.truncate(WHOLE_IN_A_PASS);
            }
        }
        gathers
    }

    /// Adds a node that reads copies in place of parameters. An update changes the shares.
    fn read_copies(&self, graph: &mut Graph, mut node: Node, copies: &BTreeMap<ValueId, ValueId>) {
        for i in 0..node.inputs.len() {
            let id = node.inputs[i];
            let copy = self.parameter.get(&id).and_then(|parameter| copies.get(parameter));
            let Some(&copy) = copy.filter(|_| !matches!(node.op, Op::Update { .. })) else { continue };
            node.inputs[i] = if !self.bucket.contains_key(&id) {
                let shape = graph.value(id).shape;
                let view =
                    graph.derive(copy, &format!("view{}", graph.values.len()), |value| value.shape = shape);
                graph.nodes.push(node.sibling(Op::Reshape(shape), vec![copy], vec![view]));
                view
            } else {
                copy
            };
        }
        graph.nodes.push(node);
    }
}
