//! Sharded updates: each rank updates its share of large parameters and sends it to the others.

use std::collections::BTreeMap;

use super::buckets::SharedBucket;
use super::exchange::{Exchanges, add_exchange, add_parts, new_token, node, send};
use crate::compile::analysis::Uses;
use crate::compile::{Parallel, Shard};
use crate::graph::{ExchangeKind, Graph, Node, Op, Share, ValueId};

/// Adds the exchanges that follow the updates of `buckets`: the parameters of each, unless they are sharded, as soon as no
/// operation of the step reads them any more, and if the ranks check gradients for overflow, what each has found. With
/// `late`, updates wait for all gradients, and so do the exchanges. Ranks that compute layers together exchange what they have
/// found as well.
pub(crate) fn share_updates(graph: &mut Graph, buckets: &[SharedBucket], parallel: Parallel, late: bool) {
    if buckets.is_empty() && parallel.tensor == 1 {
        return;
    }
    combine_flags(graph, &parallel);
    if buckets.is_empty() || parallel.shard == Shard::Parameters {
        return;
    }
    let mut updates = take_updates(graph);
    let positions = positions(graph, buckets, late);
    let nodes = std::mem::take(&mut graph.nodes);
    let mut replaced: Vec<Node> = Vec::new();
    for n in 0..=nodes.len() {
        for (bucket, _) in buckets.iter().zip(&positions).filter(|(_, at)| **at == n) {
            for (id, _) in &bucket.parameters {
                graph.nodes.extend(updates.remove(id));
            }
            let next = exchange_parameters(graph, bucket, parallel);
            // While these are on their way, those of the bucket before arrive.
            graph.nodes.extend(std::mem::replace(&mut replaced, next));
        }
        graph.nodes.extend(nodes.get(n).cloned());
    }
    graph.nodes.extend(replaced);
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
    let shares: Vec<_> = bucket.shares(graph, parallel.rank).collect();
    let exchange = send_shares(graph, bucket, &shares, parallel, Some);
    let replace = |&(id, before): &(ValueId, u64)| {
        let token = new_token(graph);
        node(Op::Replace { exchange, start: bucket.words(before) }, vec![id], vec![token])
    };
    bucket.parameters.iter().map(replace).collect()
}

/// Sends this rank's shares of the parameters of a bucket. `of` says which of their elements a share is, if they are not
/// shares themselves.
pub(super) fn send_shares(
    graph: &mut Graph,
    bucket: &SharedBucket,
    shares: &[(ValueId, Share)],
    parallel: Parallel,
    of: impl Fn(Share) -> Option<Share>,
) -> u32 {
    let exchange = add_exchange(graph, ExchangeKind::Gather, parallel.ranks, bucket.words(bucket.share));
    let own = u64::from(parallel.rank) * bucket.share;
    // In a bucket of few elements a rank may have none. The others wait for a message all the same.
    let none = shares.iter().all(|(_, share)| share.len == 0);
    let sent = shares.iter().zip(&bucket.parameters).enumerate();
    for (i, ((id, share), (_, before))) in sent {
        if share.len == 0 && !(none && i == 0) {
            continue;
        }
        let start = if none { 0 } else { bucket.words(before + share.start - own) };
        send(graph, (exchange, start), *id, of(*share));
    }
    exchange
}

/// Each rank checks its own shares: the flag is that of any.
fn combine_flags(graph: &mut Graph, parallel: &Parallel) {
    let Some(check) = graph.nodes.iter().position(|node| node.op == Op::NotFinite) else { return };
    let after = graph.nodes.split_off(check + 1);
    let flag = graph.nodes[check].outputs[0];
    let mut flags = vec![flag];
    let shape = graph.value(flag).shape;
    Exchanges::new(vec![1; parallel.ranks as usize], parallel).gather_parts(graph, vec![&mut flags]);
    let any = add_parts(graph, None, flags[0], shape);
    for mut node in after {
        node.inputs.iter_mut().filter(|id| **id == flag).for_each(|id| *id = any);
        graph.nodes.push(node);
    }
}
