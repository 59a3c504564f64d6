//! Dependencies between operations.

use std::collections::BTreeMap;
use std::ops::Index;

use crate::compile::analysis::Views;
use crate::compile::passes::WHOLE;
use crate::graph::{Class, Graph, Node, Op, ValueId};

/// For each node, its direct predecessors and successors.
pub(super) struct Dependencies {
    pub(super) before: Neighbours,
    pub(super) after: Neighbours,
}

/// For each node, the nodes at the other end of its edges, in ascending order.
pub(super) struct Neighbours {
    /// Where those of each node start in `nodes`, and the end of the last.
    starts: Vec<usize>,
    nodes: Vec<usize>,
}

impl Neighbours {
    /// The ends of edges `(node, end)` between `count` nodes.
    fn of(count: usize, mut edges: Vec<(usize, usize)>) -> Self {
        edges.sort_unstable();
        edges.dedup();
        let mut starts = vec![0; count + 1];
        edges.iter().for_each(|(node, _)| starts[node + 1] += 1);
        (0..count).for_each(|node| starts[node + 1] += starts[node]);
        Self { starts, nodes: edges.into_iter().map(|(_, end)| end).collect() }
    }

    /// The slices of all nodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[usize]> {
        self.starts.windows(2).map(|ends| &self.nodes[ends[0]..ends[1]])
    }
}

impl Index<usize> for Neighbours {
    type Output = [usize];

    fn index(&self, node: usize) -> &[usize] {
        &self.nodes[self.starts[node]..self.starts[node + 1]]
    }
}

impl Dependencies {
    pub(super) fn of(graph: &Graph, views: &Views) -> Self {
        let count = graph.nodes.len();
        // From the node that waits to the one that it waits for.
        let mut edges: Vec<(usize, usize)> = Vec::new();
        let mut producer: Vec<Option<usize>> = vec![None; graph.values.len()];
        for (n, node) in graph.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|id| producer[id.index()] = Some(n));
        }
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values.len()];
        let mut roots = views.roots();
        // A weight cast to another type stands for the weight: its update waits for the readers of the copy.
        let casts = graph.nodes.iter().filter(|node| matches!(node.op, Op::Cast(_)));
        let of_weight = |node: &Node| {
            let (from, to) = (node.inputs[0], node.outputs[0]);
            graph.value(from).class.is_persistent().then(|| (to, roots[from.index()]))
        };
        let weights: BTreeMap<ValueId, ValueId> = casts.filter_map(of_weight).collect();
        for root in &mut roots {
            *root = weights.get(root).copied().unwrap_or(*root);
        }
        for (n, node) in graph.nodes.iter().enumerate() {
            for id in &node.inputs {
                readers[roots[id.index()].index()].push(n);
                if let Some(p) = producer[id.index()] {
                    edges.push((n, p));
                }
            }
        }
        // An operation that changes a value in place waits for all readers of the old value.
        for (n, node) in graph.nodes.iter().enumerate() {
            for &position in node.op.mutates() {
                for &reader in &readers[roots[node.inputs[position].index()].index()] {
                    // If two operations change it, the later one waits.
                    let changes = graph.nodes[reader].op.mutates().iter().any(|&other| {
                        roots[graph.nodes[reader].inputs[other].index()]
                            == roots[node.inputs[position].index()]
                    });
                    if reader < n || (reader > n && !changes) {
                        edges.push((n, reader));
                    }
                }
            }
        }
        gathers(graph, &readers, &mut edges);
        parts(graph, &producer, &readers, &mut edges);
        let reversed = edges.iter().map(|&(waits, first)| (first, waits)).collect();
        Self { before: Neighbours::of(count, edges), after: Neighbours::of(count, reversed) }
    }
}

/// A bucket of sharded parameters is received when those before the last were read: otherwise all might be whole at
/// once. `readers` are the nodes that read each value's memory.
fn gathers(graph: &Graph, readers: &[Vec<usize>], edges: &mut Vec<(usize, usize)>) {
    // By exchange: its first node, and what it received.
    let mut all: Vec<(u32, usize, Vec<ValueId>)> = Vec::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        let Op::Receive { exchange, .. } = node.op else { continue };
        let copy = node.outputs[0];
        if graph.value(copy).class != Class::Workspace {
            continue;
        }
        match all.last_mut().filter(|(last, ..)| *last == exchange) {
            Some((.., copies)) => copies.push(copy),
            None => all.push((exchange, n, vec![copy])),
        }
    }
    for (k, (_, first, _)) in all.iter().enumerate().skip(WHOLE) {
        let before = all[k - WHOLE].2.iter().flat_map(|copy| &readers[copy.index()]);
        edges.extend(before.filter(|reader| *reader < first).map(|&reader| (*first, reader)));
    }
}

/// What reads a part of a tensor that a layer passes on waits for its other parts, as it would for the whole: layers stay one
/// after another.
fn parts(graph: &Graph, producer: &[Option<usize>], readers: &[Vec<usize>], edges: &mut Vec<(usize, usize)>) {
    let mut tensors: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (i, value) in graph.values.iter().enumerate() {
        if let Some(tensor) = value.tensor_in_parts() {
            tensors.entry(tensor).or_default().push(i);
        }
    }
    for values in tensors.into_values() {
        let made: Vec<usize> = values.iter().filter_map(|&i| producer[i]).collect();
        for &reader in values.iter().flat_map(|&i| &readers[i]) {
            // What comes before some parts, such as the cast of another, does not wait for them.
            edges.extend(made.iter().filter(|made| **made < reader).map(|&made| (reader, made)));
        }
    }
}
