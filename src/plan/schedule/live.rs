//! How much is alive while operations run in some order.

use crate::graph::{Graph, Op, ValueId};
use crate::lower;

/// For each value, the one whose memory it is a view of.
pub(in crate::plan) fn roots(graph: &Graph) -> Vec<ValueId> {
    let mut roots: Vec<ValueId> = (0..graph.values.len() as u32).map(ValueId).collect();
    for node in &graph.nodes {
        if let (Op::Reshape(_), [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
            roots[to.index()] = roots[from.index()];
        }
    }
    roots
}

/// Uses that are still to come of each piece of memory.
pub(super) struct Live {
    roots: Vec<ValueId>,
    uses: Vec<usize>,
    stays: Vec<bool>,
}

impl Live {
    pub(super) fn new(graph: &Graph) -> Self {
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
    pub(super) fn growth(&self, graph: &Graph, n: usize) -> i128 {
        self.taken(graph, n) - self.freed(graph, n)
    }

    /// Bytes of the results of node `n`.
    fn taken(&self, graph: &Graph, n: usize) -> i128 {
        let node = &graph.nodes[n];
        if matches!(node.op, Op::Reshape(_)) {
            return 0;
        }
        node.outputs.iter().map(|id| i128::from(graph.value(*id).bytes())).sum()
    }

    /// Bytes of operands that nobody reads after node `n`.
    fn freed(&self, graph: &Graph, n: usize) -> i128 {
        let mut seen: Vec<(ValueId, usize)> = Vec::new();
        for id in &graph.nodes[n].inputs {
            let root = self.roots[id.index()];
            match seen.iter_mut().find(|(other, _)| *other == root) {
                Some((_, count)) => *count += 1,
                None => seen.push((root, 1)),
            }
        }
        let last = |(root, count): &&(ValueId, usize)| self.dies(*root, *count);
        seen.iter().filter(last).map(|(root, _)| i128::from(graph.value(*root).bytes())).sum()
    }

    fn dies(&self, root: ValueId, count: usize) -> bool {
        self.uses[root.index()] == count && !self.stays[root.index()]
    }

    /// Bytes that node `n` needs beside what is alive while it runs: its results, unless the first takes over an
    /// operand's memory.
    fn beside(&self, graph: &Graph, n: usize) -> i128 {
        let node = &graph.nodes[n];
        let taken = self.taken(graph, n);
        let Some(first) = node.outputs.first() else { return taken };
        let types: Vec<_> =
            node.inputs.iter().map(|id| (graph.value(*id).shape, graph.value(*id).dtype)).collect();
        let over = lower::in_place_inputs(&node.op, &types, graph.value(*first).shape);
        let takes_over = over.into_iter().any(|i| self.dies(self.roots[node.inputs[i].index()], 1));
        if takes_over { taken - i128::from(graph.value(*first).bytes()) } else { taken }
    }

    pub(super) fn run(&mut self, graph: &Graph, n: usize) {
        for id in &graph.nodes[n].inputs {
            self.uses[self.roots[id.index()].index()] -= 1;
        }
    }
}

/// Bytes alive while each operation of an order runs, beside what is there from the start.
pub(super) fn profile(graph: &Graph, order: &[usize]) -> Vec<i128> {
    let mut live = Live::new(graph);
    let mut now = 0;
    order
        .iter()
        .map(|&n| {
            let while_it_runs = now + live.beside(graph, n);
            now += live.growth(graph, n);
            live.run(graph, n);
            while_it_runs
        })
        .collect()
}

/// The most that is alive at once.
pub(super) fn peak(graph: &Graph, order: &[usize]) -> i128 {
    profile(graph, order).into_iter().max().unwrap_or(0)
}
