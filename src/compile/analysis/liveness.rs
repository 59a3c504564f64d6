//! Memory liveness: bytes alive while operations run in a given order.

use std::ops::Range;

use super::Views;
use crate::graph::{Graph, Node, ValueId};
use crate::kernels;

/// Memory that a node reads.
struct Read {
    root: usize,
    /// Number of operands that read it.
    count: usize,
    /// Bytes freed after its last read; 0 for memory that is never freed.
    bytes: u64,
}

/// How running a node changes memory.
struct Effect {
    /// Bytes of its results.
    taken: i128,
    /// Bytes of its first result.
    first: u64,
    /// Bytes needed only while it runs.
    passing: i128,
    /// Its part of [`Effects::reads`].
    reads: Range<usize>,
    /// Its part of [`Effects::over`].
    over: Range<usize>,
}

/// How running each node of a graph changes memory, independent of the order.
pub(in crate::compile) struct Effects {
    nodes: Vec<Effect>,
    /// What the nodes read, in their order.
    reads: Vec<Read>,
    /// Roots of the operands that the first result of each node may overwrite.
    over: Vec<usize>,
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
        let (reads, over, nodes) = (Vec::new(), Vec::new(), Vec::with_capacity(graph.nodes.len()));
        let readers = vec![(0, 0); graph.values.len()];
        let mut effects = Self { nodes, reads, over, uses, readers, stays };
        for (n, node) in graph.nodes.iter().enumerate() {
            let effect = effects.effect(graph, node, views.is_free(node), &roots);
            for read in &effects.reads[effect.reads.clone()] {
                let (count, all) = &mut effects.readers[read.root];
                *count += 1;
                *all ^= n;
            }
            effects.nodes.push(effect);
        }
        effects
    }

    fn effect(&mut self, graph: &Graph, node: &Node, free: bool, roots: &[ValueId]) -> Effect {
        let bytes = |id: &ValueId| graph.value(*id).bytes();
        let (start, start_over) = (self.reads.len(), self.over.len());
        for id in &node.inputs {
            let root = roots[id.index()];
            match self.reads[start..].iter_mut().find(|read| read.root == root.index()) {
                Some(read) => read.count += 1,
                None => {
                    let bytes = if self.stays[root.index()] { 0 } else { bytes(&root) };
                    self.reads.push(Read { root: root.index(), count: 1, bytes });
                }
            }
        }
        let reads = start..self.reads.len();
        let passing = graph.offloaded_operands(node).map(|i| i128::from(graph.operand_bytes(node, i))).sum();
        let first = match node.outputs.first() {
            Some(id) if !free => *id,
            _ => return Effect { taken: 0, first: 0, passing, reads, over: 0..0 },
        };
        let types: Vec<_> =
            node.inputs.iter().map(|id| (graph.value(*id).shape, graph.value(*id).dtype)).collect();
        let over = kernels::in_place_inputs(&node.op, &types, graph.value(first).shape);
        self.over.extend(over.into_iter().map(|i| roots[node.inputs[i].index()].index()));
        let taken = node.outputs.iter().map(|id| i128::from(bytes(id))).sum();
        Effect { taken, first: bytes(&first), passing, reads, over: start_over..self.over.len() }
    }

    fn reads(&self, n: usize) -> &[Read] {
        &self.reads[self.nodes[n].reads.clone()]
    }
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
        let dying = self.effects.reads(n).iter().filter(|read| self.uses[read.root] == read.count);
        self.effects.nodes[n].taken - dying.map(|read| i128::from(read.bytes)).sum::<i128>()
    }

    /// Bytes that node `n` needs in addition to those alive before it: its results, unless the first
    /// overwrites an operand, and operands copied from the host.
    fn beside(&self, n: usize) -> i128 {
        let effect = &self.effects.nodes[n];
        let dies = |root: &&usize| self.uses[**root] == 1 && !self.effects.stays[**root];
        let over = self.effects.over[effect.over.clone()].iter().any(|root| dies(&root));
        effect.passing + effect.taken - if over { i128::from(effect.first) } else { 0 }
    }

    /// Runs node `n` and calls `changed` with each node whose growth this changes: the last reader left of
    /// memory that `n` reads.
    pub(in crate::compile) fn run(&mut self, n: usize, mut changed: impl FnMut(&Self, usize)) {
        for read in self.effects.reads(n) {
            self.uses[read.root] -= read.count;
            let (count, all) = &mut self.readers[read.root];
            *count -= 1;
            *all ^= n;
        }
        for read in self.effects.reads(n) {
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
