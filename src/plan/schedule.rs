//! The order of operations: as traced, but what frees more memory than it takes runs as soon as it can. So a gradient is
//! consumed by its update at once, and all gradients are never alive together unless something needs them.

use std::collections::BTreeSet;

use crate::graph::{Graph, Op, ValueId};

/// Positions of `graph.nodes` in the order they run.
pub(super) fn schedule(graph: &Graph) -> Vec<usize> {
    let dependencies = Dependencies::of(graph);
    let mut waiting: Vec<usize> = dependencies.before.iter().map(BTreeSet::len).collect();
    let mut ready: BTreeSet<usize> = (0..graph.nodes.len()).filter(|&n| waiting[n] == 0).collect();
    let mut live = Live::new(graph);
    let mut order = Vec::with_capacity(graph.nodes.len());
    while let Some(&first) = ready.iter().next() {
        let freeing =
            ready.iter().map(|&n| (live.growth(graph, n), n)).filter(|(growth, _)| *growth < 0).min();
        let next = freeing.map_or(first, |(_, n)| n);
        ready.remove(&next);
        live.run(graph, next);
        order.push(next);
        for &after in &dependencies.after[next] {
            waiting[after] -= 1;
            if waiting[after] == 0 {
                ready.insert(after);
            }
        }
    }
    order
}

struct Dependencies {
    before: Vec<BTreeSet<usize>>,
    after: Vec<BTreeSet<usize>>,
}

impl Dependencies {
    fn of(graph: &Graph) -> Self {
        let count = graph.nodes.len();
        let mut edges = Self { before: vec![BTreeSet::new(); count], after: vec![BTreeSet::new(); count] };
        let mut producer: Vec<Option<usize>> = vec![None; graph.values.len()];
        for (n, node) in graph.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|id| producer[id.index()] = Some(n));
        }
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values.len()];
        let roots = roots(graph);
        for (n, node) in graph.nodes.iter().enumerate() {
            for id in &node.inputs {
                readers[roots[id.index()].index()].push(n);
                if let Some(p) = producer[id.index()] {
                    edges.add(p, n);
                }
            }
        }
        // What changes a value in place waits for everyone who reads the old one.
        for (n, node) in graph.nodes.iter().enumerate() {
            for &position in node.op.mutates() {
                for &reader in &readers[roots[node.inputs[position].index()].index()] {
                    if reader != n {
                        edges.add(reader, n);
                    }
                }
            }
        }
        edges
    }

    fn add(&mut self, before: usize, after: usize) {
        self.before[after].insert(before);
        self.after[before].insert(after);
    }
}

/// For each value, the one whose memory it is a view of.
pub(super) fn roots(graph: &Graph) -> Vec<ValueId> {
    let mut roots: Vec<ValueId> = (0..graph.values.len() as u32).map(ValueId).collect();
    for node in &graph.nodes {
        if let (Op::Reshape(_), [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
            roots[to.index()] = roots[from.index()];
        }
    }
    roots
}

/// Uses that are still to come of each piece of memory.
struct Live {
    roots: Vec<ValueId>,
    uses: Vec<usize>,
    stays: Vec<bool>,
}

impl Live {
    fn new(graph: &Graph) -> Self {
        let roots = roots(graph);
        let mut uses = vec![0; graph.values.len()];
        for node in &graph.nodes {
            node.inputs.iter().for_each(|id| uses[roots[id.index()].index()] += 1);
        }
        let mut stays: Vec<bool> = graph.values.iter().map(|v| v.class.is_persistent()).collect();
        graph.outputs.iter().for_each(|(_, id)| stays[roots[id.index()].index()] = true);
        Self { roots, uses, stays }
    }

    /// Bytes that running node `n` now takes, less those that it frees.
    fn growth(&self, graph: &Graph, n: usize) -> i128 {
        let node = &graph.nodes[n];
        let mut growth = 0i128;
        if !matches!(node.op, Op::Reshape(_)) {
            growth += node.outputs.iter().map(|id| i128::from(graph.value(*id).bytes())).sum::<i128>();
        }
        let mut seen: Vec<(ValueId, usize)> = Vec::new();
        for id in &node.inputs {
            let root = self.roots[id.index()];
            match seen.iter_mut().find(|(other, _)| *other == root) {
                Some((_, count)) => *count += 1,
                None => seen.push((root, 1)),
            }
        }
        for (root, count) in seen {
            if self.uses[root.index()] == count && !self.stays[root.index()] {
                growth -= i128::from(graph.value(root).bytes());
            }
        }
        growth
    }

    fn run(&mut self, graph: &Graph, n: usize) {
        for id in &graph.nodes[n].inputs {
            self.uses[self.roots[id.index()].index()] -= 1;
        }
    }
}
