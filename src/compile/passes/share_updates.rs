//! Sharded updates: each rank updates its share of large parameters and sends it to the others.

use std::collections::{BTreeMap, BTreeSet};

use super::exchange::{SharedBucket, add_exchange, new_token, node};
use crate::compile::Parallel;
use crate::compile::analysis::Uses;
use crate::graph::{Binary, ExchangeKind, Graph, Node, Op, Share, ValueId};
use crate::shape::Shape;

/// Adds the exchanges that follow the updates of `buckets`: the parameters of each, as soon as no operation of the step reads
/// them any more, and if the ranks check gradients for overflow, what each has found. With `late`, updates wait for
/// all gradients, and so do the exchanges.
pub(crate) fn share_updates(graph: &mut Graph, buckets: &[SharedBucket], parallel: Parallel, late: bool) {
    if buckets.is_empty() {
        return;
    }
    combine_flags(graph, parallel.ranks);
    let mut updates = take_updates(graph);
    let positions = positions(graph, buckets, late);
    let nodes = std::mem::take(&mut graph.nodes);
    let mut pending = Pending::default();
    for n in 0..=nodes.len() {
        for (bucket, _) in buckets.iter().zip(&positions).filter(|(_, at)| **at == n) {
            for (id, _) in &bucket.parameters {
                graph.nodes.extend(updates.remove(id));
            }
            let next = exchange_parameters(graph, bucket, parallel);
            // While these are on their way, those of the bucket before arrive.
            graph
                .nodes
                .extend(std::mem::replace(&mut pending, Pending { nodes: next, ..Pending::default() }).nodes);
        }
        let Some(node) = nodes.get(n) else { break };
        graph.nodes.extend(pending.due(&node.op));
        graph.nodes.push(node.clone());
    }
    graph.nodes.extend(pending.nodes);
}

/// Parameters that are on their way.
#[derive(Default)]
struct Pending {
    nodes: Vec<Node>,
    /// Exchanges that were sent since.
    newer: BTreeSet<u32>,
}

impl Pending {
    /// Returns the nodes that receive the parameters if they must run before an operation: one that receives what was sent
    /// after them.
    fn due(&mut self, op: &Op) -> Vec<Node> {
        match op {
            Op::Send { exchange, .. } => drop(self.newer.insert(*exchange)),
            Op::Receive { exchange, .. } if self.newer.contains(exchange) => {
                return std::mem::take(&mut self.nodes);
            }
            _ => {}
        }
        Vec::new()
    }
}

/// For each bucket, the index of the node before which its updates run: the next exchange after the last reader of its
/// parameters, which is the same on all ranks.
fn positions(graph: &Graph, buckets: &[SharedBucket], late: bool) -> Vec<usize> {
    let uses = Uses::new(graph, &graph.nodes);
    let mut root = uses.root.clone();
    let mut last = vec![0; graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        if let (Op::Slice { .. }, [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
            root[to.index()] = root[from.index()];
        }
        node.inputs.iter().for_each(|id| last[root[id.index()].index()] = n);
    }
    let position = |bucket: &SharedBucket| {
        let made = uses.made[bucket.ready.index()].unwrap_or(0);
        let after = bucket.parameters.iter().map(|(id, _)| last[id.index()]).fold(made, usize::max);
        let next = graph.nodes.iter().skip(after + 1).position(|node| node.op.exchanges());
        next.filter(|_| !late).map_or(graph.nodes.len(), |next| after + 1 + next)
    };
    buckets.iter().map(position).collect()
}

/// Takes the updates of shares out of the graph, by parameter.
fn take_updates(graph: &mut Graph) -> BTreeMap<ValueId, Node> {
    let of_a_share = |node: &Node| matches!(node.op, Op::Update { share: Some(_), .. });
    let (updates, others): (Vec<Node>, Vec<Node>) =
        std::mem::take(&mut graph.nodes).into_iter().partition(of_a_share);
    graph.nodes = others;
    updates.into_iter().map(|node| (node.inputs[0], node)).collect()
}

/// Sends this rank's shares of a bucket; returns the nodes that take those of all ranks.
fn exchange_parameters(graph: &mut Graph, bucket: &SharedBucket, parallel: Parallel) -> Vec<Node> {
    let first = bucket.parameters[0].0;
    let word = |elements: u64| if bucket.half { elements / 2 } else { elements };
    let share = word(bucket.share);
    let starts: Vec<u64> = bucket.parameters.iter().map(|(_, before)| word(*before)).collect();
    let own = u64::from(parallel.rank) * bucket.share;
    let shares = bucket.shares(graph, parallel.rank).zip(&bucket.parameters);
    let sent = shares.filter(|((_, share), _)| share.len > 0);
    let sent = sent.map(|((id, share), (_, before))| (id, share, word(before + share.start - own)));
    let mut sent: Vec<(ValueId, Share, u64)> = sent.collect();
    if sent.is_empty() {
        // A bucket of few elements: the others wait for this rank's none.
        sent.push((first, Share { start: 0, len: 0 }, 0));
    }
    let exchange = add_exchange(graph, ExchangeKind::Gather, parallel.ranks, share);
    for (id, share, start) in sent {
        let token = new_token(graph);
        graph.nodes.push(node(Op::Send { exchange, start, share: Some(share) }, vec![id], vec![token]));
    }
    let replace = |((id, _), start): (&(ValueId, u64), u64)| {
        let token = new_token(graph);
        node(Op::Replace { exchange, start }, vec![*id], vec![token])
    };
    bucket.parameters.iter().zip(starts).map(replace).collect()
}

/// Each rank checks its own shares: the flag is that of any.
fn combine_flags(graph: &mut Graph, ranks: u32) {
    let Some(check) = graph.nodes.iter().position(|node| node.op == Op::NotFinite) else { return };
    let after = graph.nodes.split_off(check + 1);
    let flag = graph.nodes[check].outputs[0];
    let exchange = add_exchange(graph, ExchangeKind::Gather, ranks, 1);
    let token = new_token(graph);
    graph.nodes.push(node(Op::Send { exchange, start: 0, share: None }, vec![flag], vec![token]));
    let mut any = None;
    for start in 0..u64::from(ranks) {
        let [received, combined] =
            ["received", "any"].map(|name| graph.derive(flag, &format!("{name}{start}"), |_| ()));
        let (token, value) = (new_token(graph), graph.value(flag));
        let op = Op::Receive { exchange, start, shape: Shape::from([]), dtype: value.dtype };
        graph.nodes.push(node(op, Vec::new(), vec![received, token]));
        let Some(before) = any.replace(received) else { continue };
        graph.nodes.push(node(Op::Binary(Binary::Add), vec![before, received], vec![combined]));
        any = Some(combined);
    }
    graph.nodes.extend(after);
    let Some(any) = any else { return };
    for node in &mut graph.nodes[check + 1..] {
        let reads = node.op != (Op::Send { exchange, start: 0, share: None });
        node.inputs.iter_mut().filter(|id| reads && **id == flag).for_each(|id| *id = any);
    }
}
