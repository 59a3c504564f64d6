//! Memory liveness: bytes alive while operations run in a given order.

use super::Views;
use crate::graph::{Graph, Node, ValueId};
use crate::kernels;

/// Memory that a node reads.
struct Read {
    root: usize,
    /// Number of operands that read it.
    count: usize,
    /// Bytes freed after its last read; 0 for memory that is never freed.
    bytes: i128,
}

/// How running a node changes memory.
struct Effect {
    /// Bytes of its results.
    taken: i128,
    /// Bytes of its first result.
    first: i128,
    /// Bytes needed only while it runs.
    passing: i128,
    reads: Vec<Read>,
    /// Roots of the operands that the first result may overwrite.
    over: Vec<usize>,
}

/// How running each node of a graph changes memory, independent of the order.
pub(in crate::compile) struct Effects {
    nodes: Vec<Effect>,
    uses: Vec<usize>,
    /// The nodes that read each value's memory: how many, and the exclusive or of their indices.
    readers: Vec<(usize, usize)>,
    stays: Vec<bool>,
}

impl Effects {
    pub(in crate::compile) fn of(graph: &Graph, views: &Views) -> Self {
        let roots = views.roots();
        let mut uses = vec![0; graph.values.len()];
        for node in &graph.nodes {
            node.inputs.iter().for_each(|id| uses[roots[id.index()].index()] += 1);
        }
        let mut stays: Vec<bool> = graph.values.iter().map(|v| v.class.is_persistent()).collect();
        graph.outputs.iter().for_each(|(_, id)| stays[roots[id.index()].index()] = true);
        let nodes: Vec<Effect> =
            graph.nodes.iter().map(|node| effect(graph, node, views.is_free(node), &roots, &stays)).collect();
        let mut readers = vec![(0, 0); graph.values.len()];
        for (n, node) in nodes.iter().enumerate() {
            for read in &node.reads {
                let (count, all) = &mut readers[read.root];
                *count += 1;
                *all ^= n;
            }
        }
        Self { nodes, uses, readers, stays }
    }
}

fn effect(graph: &Graph, node: &Node, free: bool, roots: &[ValueId], stays: &[bool]) -> Effect {
    let bytes = |id: &ValueId| i128::from(graph.value(*id).bytes());
    let mut reads: Vec<Read> = Vec::new();
    for id in &node.inputs {
        let root = roots[id.index()];
        match reads.iter_mut().find(|read| read.root == root.index()) {
            Some(read) => read.count += 1,
            None => {
                let bytes = if stays[root.index()] { 0 } else { bytes(&root) };
                reads.push(Read { root: root.index(), count: 1, bytes });
            }
        }
    }
    let passing = graph.offloaded_operands(node).map(|i| i128::from(graph.operand_bytes(node, i))).sum();
    let first = match node.outputs.first() {
        Some(id) if !free => *id,
        _ => return Effect { taken: 0, first: 0, passing, reads, over: Vec::new() },
    };
    let types: Vec<_> =
        node.inputs.iter().map(|id| (graph.value(*id).shape, graph.value(*id).dtype)).collect();
    let over = kernels::in_place_inputs(&node.op, &types, graph.value(first).shape);
    let over = over.into_iter().map(|i| roots[node.inputs[i].index()].index()).collect();
    let taken = node.outputs.iter().map(bytes).sum();
    Effect { taken, first: bytes(&first), passing, reads, over }
}

/// The remaining uses of each value's memory.
pub(in crate::compile) struct Live<'a> {
    effects: &'a Effects,
    uses: Vec<usize>,
    readers: Vec<(usize, usize)>,
}

impl<'a> Live<'a> {
    pub(in crate::compile) fn new(effects: &'a Effects) -> Self {
        Self { effects, uses: effects.uses.clone(), readers: effects.readers.clone() }
    }

    /// Bytes that running node `n` now allocates, minus the bytes that it frees.
    pub(in crate::compile) fn growth(&self, n: usize) -> i128 {
        let effect = &self.effects.nodes[n];
        let dying = effect.reads.iter().filter(|read| self.uses[read.root] == read.count);
        effect.taken - dying.map(|read| read.bytes).sum::<i128>()
    }

    /// Bytes that node `n` needs in addition to those alive before it: its results, unless the first
    /// overwrites an operand, and operands copied from the host.
    fn beside(&self, n: usize) -> i128 {
        let effect = &self.effects.nodes[n];
        let dies = |root: &&usize| self.uses[**root] == 1 && !self.effects.stays[**root];
        let over = effect.over.iter().any(|root| dies(&root));
        effect.passing + if over { effect.taken - effect.first } else { effect.taken }
    }

    /// Runs node `n` and calls `changed` with each node whose growth this changes: the last reader left of
    /// memory that `n` reads.
    pub(in crate::compile) fn run(&mut self, n: usize, mut changed: impl FnMut(&Self, usize)) {
        for read in &self.effects.nodes[n].reads {
            self.uses[read.root] -= read.count;
            let (count, all) = &mut self.readers[read.root];
            *count -= 1;
            *all ^= n;
        }
        for read in &self.effects.nodes[n].reads {
            if let (1, last) = self.readers[read.root] {
                changed(self, last);
            }
        }
    }
}

/// Bytes alive while each operation of an order runs, in addition to those alive from the start.
pub(in crate::compile) fn profile(effects: &Effects, order: &[usize]) -> Vec<i128> {
    let mut live = Live::new(effects);
    let mut now = 0;
    order
        .iter()
        .map(|&n| {
            let while_it_runs = now + live.beside(n);
            now += live.growth(n);
            live.run(n, |_, _| ());
            while_it_runs
        })
        .collect()
}

/// Maximum bytes alive at once.
pub(in crate::compile) fn peak(effects: &Effects, order: &[usize]) -> i128 {
    profile(effects, order).into_iter().max().unwrap_or(0)
}
