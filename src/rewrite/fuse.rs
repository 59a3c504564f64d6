//! Functions of single elements that follow each other become one operation: what lies between them is neither written nor
//! read, and needs no memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::simplify::prune;
use crate::dtype::DType;
use crate::graph::{Arg, Chain, Graph, Link, Node, Op, ValueId, is_link, only_reads};

/// Operands of one chain: with its result they are as many buffers as every adapter binds.
const MOST_OPERANDS: usize = 7;
/// Links of one chain. Longer ones would save little more, and their kernels take longer to compile.
const MOST_LINKS: usize = 12;

/// Joins each function of single elements with those in front of it whose result nobody else reads. Operations that only read
/// otherwise, such as a broadcast, join everyone who reads them.
pub(crate) fn fuse(mut graph: Graph) -> Graph {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut fuse = Fuse::new(graph, &nodes);
    for (n, node) in nodes.into_iter().enumerate() {
        let node = fuse.joined(n, node);
        fuse.nodes.push(Some(node));
    }
    fuse.graph.nodes = fuse.nodes.into_iter().flatten().collect();
    prune(fuse.graph)
}

/// A chain in the making.
#[derive(Clone)]
struct Draft {
    links: Vec<Link>,
    operands: Vec<ValueId>,
}

impl Draft {
    fn of(node: &Node) -> Self {
        match &node.op {
            Op::Chain(chain) => Self { links: chain.links().to_vec(), operands: node.inputs.clone() },
            op => {
                let mut draft = Self { links: Vec::new(), operands: Vec::new() };
                let args = node.inputs.iter().map(|id| draft.operand(*id)).collect();
                draft.links.push(Link { op: op.clone(), args });
                draft
            }
        }
    }

    fn operand(&mut self, id: ValueId) -> Arg {
        let known = self.operands.iter().position(|other| *other == id);
        Arg::Operand(known.unwrap_or_else(|| {
            self.operands.push(id);
            self.operands.len() - 1
        }))
    }

    /// With `first` in front, whose result is operand `k`.
    fn behind(&self, first: &Self, k: usize) -> Self {
        let mut joined = first.clone();
        let last = Arg::Link(first.links.len() - 1);
        for link in &self.links {
            let moved = |arg: &Arg| match *arg {
                Arg::Operand(i) if i == k => last,
                Arg::Operand(i) => joined.operand(self.operands[i]),
                Arg::Link(j) => Arg::Link(first.links.len() + j),
            };
            let args = link.args.iter().map(moved).collect();
            joined.links.push(Link { op: link.op.clone(), args });
        }
        joined
    }
}

struct Fuse {
    graph: Graph,
    /// What was written so far; `None` where an operation became part of a later one.
    nodes: Vec<Option<Node>>,
    /// The node that makes each value, by its position. A view is made where the value behind it is.
    made: Vec<Option<usize>>,
    /// For each value the one whose memory it is a view of.
    root: Vec<ValueId>,
    /// How many nodes read each value; the host counts as one.
    readers: Vec<u32>,
    /// The last node that reads each value's memory.
    last_read: Vec<usize>,
}

impl Fuse {
    fn new(graph: Graph, nodes: &[Node]) -> Self {
        let count = graph.values.len();
        let mut root: Vec<ValueId> = (0..count as u32).map(ValueId).collect();
        let (mut made, mut readers, mut last_read) = (vec![None; count], vec![0; count], vec![0; count]);
        for (n, node) in nodes.iter().enumerate() {
            if let (Op::Reshape(_), [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
                root[to.index()] = root[from.index()];
                made[to.index()] = made[from.index()];
            } else {
                node.outputs.iter().for_each(|id| made[id.index()] = Some(n));
            }
            for id in node.inputs.iter().collect::<BTreeSet<_>>() {
                readers[id.index()] += 1;
                last_read[root[id.index()].index()] = n;
            }
        }
        for (_, id) in &graph.outputs {
            readers[id.index()] += 1;
            last_read[root[id.index()].index()] = nodes.len();
        }
        Self { nodes: Vec::with_capacity(nodes.len()), graph, made, root, readers, last_read }
    }

    fn dtype(&self, id: ValueId) -> DType {
        self.graph.value(id).dtype
    }

    fn joins(&self, node: &Node) -> bool {
        let first = node.inputs.first().map(|id| self.dtype(*id));
        node.outputs.len() == 1 && (is_link(&node.op, first) || matches!(node.op, Op::Chain(_)))
    }

    fn reads_only(&self, node: &Node) -> bool {
        only_reads(&node.op, node.inputs.first().map(|id| self.dtype(*id)))
    }

    /// The node with everything in front of it that it can take in.
    fn joined(&mut self, n: usize, mut node: Node) -> Node {
        if !self.joins(&node)
            || self.reads_only(&node)
            || self.graph.value(node.outputs[0]).shape.numel() == 0
        {
            return node;
        }
        let mut draft = Draft::of(&node);
        let mut k = 0;
        while k < draft.operands.len() {
            match self.with(&draft, k, n, &node) {
                Some(longer) => {
                    draft = longer;
                    k = 0;
                }
                None => k += 1,
            }
        }
        if draft.links.len() > 1 {
            let shape = self.graph.value(node.outputs[0]).shape;
            node.op = Op::Chain(Arc::new(Chain::new(draft.links, shape)));
            node.inputs = draft.operands;
        }
        node
    }

    /// The draft with what makes its operand `k` in front, if that can be and needs no more memory.
    fn with(&mut self, draft: &Draft, k: usize, n: usize, node: &Node) -> Option<Draft> {
        let id = draft.operands[k];
        let at = self.made[id.index()].filter(|_| self.root[id.index()] == id)?;
        let first = self.nodes.get(at)?.as_ref().filter(|first| self.joins(first))?;
        let shape = |id: ValueId| self.graph.value(id).shape;
        let free = self.reads_only(first);
        let alone = self.readers[id.index()] == 1 && first.phase == node.phase;
        if shape(id) != shape(node.outputs[0]) || !(free || alone) {
            return None;
        }
        let before = Draft::of(first);
        let joined = draft.behind(&before, k);
        if !self.fits(&joined, node) || !(free || self.spares(&before, id, at, draft, n)) {
            return None;
        }
        let readers = &mut self.readers[id.index()];
        *readers -= 1;
        if *readers == 0 {
            self.nodes[at] = None;
        }
        for operand in &joined.operands {
            let last = &mut self.last_read[self.root[operand.index()].index()];
            *last = (*last).max(n);
        }
        Some(joined)
    }

    /// Whether a kernel can be written for it.
    fn fits(&self, draft: &Draft, node: &Node) -> bool {
        let memory: BTreeSet<ValueId> = draft.operands.iter().map(|id| self.root[id.index()]).collect();
        let halves: BTreeSet<_> =
            draft.operands.iter().map(|id| self.dtype(*id)).filter(|d| d.is_half()).collect();
        let result = self.graph.value(node.outputs[0]).shape;
        let shapes: Vec<_> = draft.operands.iter().map(|id| self.graph.value(*id).shape).collect();
        draft.operands.len() <= MOST_OPERANDS
            && draft.links.len() <= MOST_LINKS
            // No dispatch binds the same bytes twice.
            && memory.len() == draft.operands.len()
            && halves.len() <= 1
            && Chain::new(draft.links.clone(), result).reads(&shapes).is_some()
    }

    /// Whether no more is alive between `at`, where `before` runs as long as it stands alone, and `n`: either all else that the
    /// chain reads is there at `at`, or what `before` reads and nobody reads later is no more than its result `id`.
    fn spares(&self, before: &Draft, id: ValueId, at: usize, draft: &Draft, n: usize) -> bool {
        let waits = draft.operands.iter().any(|other| {
            let made = self.made[self.root[other.index()].index()];
            *other != id && made.is_some_and(|made| made > at)
        });
        let dies = |operand: &&ValueId| {
            let root = self.root[operand.index()];
            !self.graph.value(root).class.is_persistent()
                && self.last_read[root.index()] <= at
                && !draft.operands.iter().any(|other| self.root[other.index()] == root)
        };
        let held: u64 = before.operands.iter().filter(dies).map(|id| self.graph.value(*id).bytes()).sum();
        debug_assert!(at < n);
        let own = self.graph.value(id).bytes();
        // A bias or the like more is nothing.
        !waits || held <= own + own / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Mode, Params, Tensor, Trace};

    fn names(build: impl FnOnce(&Trace) -> Tensor) -> Vec<&'static str> {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", build).expect("valid");
        fuse(graph).nodes.iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn what_one_node_reads_is_joined_and_what_two_read_stays() {
        let chain = names(|trace| trace.input("x", [4]).exp().tanh().sum(&[]));
        assert_eq!(chain, ["exp+tanh", "sum", "reshape"]);
        let shared = names(|trace| {
            let y = trace.input("x", [4]).exp();
            y.tanh().add(&y.square()).sum(&[])
        });
        assert_eq!(shared, ["exp", "square+tanh+add", "sum", "reshape"]);
        let twice = names(|trace| {
            let y = trace.input("x", [4]).exp();
            y.mul(&y)
        });
        assert_eq!(twice, ["exp+mul"]);
    }

    #[test]
    fn a_broadcast_joins_all_its_readers() {
        let list = names(|trace| {
            let wide = trace.input("x", [4]).expand([3, 4]);
            wide.exp().sum(&[]).add(&wide.mul(&trace.input("z", [3, 4])).sum(&[]))
        });
        assert_eq!(list, ["exp", "sum", "reshape", "mul", "sum", "reshape", "add"]);
        let odd =
            names(|trace| trace.input("x", [2, 1, 4]).expand([2, 3, 4]).mul(&trace.input("z", [2, 3, 4])));
        assert_eq!(odd, ["expand", "mul"], "no strip");
    }

    #[test]
    fn two_views_of_one_tensor_stay_apart() {
        let list = names(|trace| {
            let x = trace.input("x", [2, 2]).exp();
            x.reshape([4]).tanh().reshape([4]).mul(&x.reshape([4]))
        });
        assert!(!list.contains(&"tanh+mul"), "{list:?}");
    }

    /// `x + y` would wait, with both operands in memory, for `late`, which is made in between.
    #[test]
    fn operands_are_not_held_for_what_comes_later() {
        let list = |one_dies: bool| {
            names(|trace| {
                let x = trace.input("x", [64, 64]).exp();
                let y = if one_dies { trace.input("z", [64]) } else { trace.input("y", [64, 64]).exp() };
                let sum = x.add(&y);
                let late = trace.input("a", [64, 64]).matmul(&trace.input("b", [64, 64]));
                sum.add(&late)
            })
        };
        assert_eq!(list(true), ["matmul", "exp+add+add"]);
        assert_eq!(list(false), ["exp+exp+add", "matmul", "add"]);
    }

    #[test]
    fn no_chain_binds_more_than_every_adapter_has() {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", |trace| {
            let inputs: Vec<Tensor> = (0..20).map(|i| trace.input(&format!("x{i}"), [4])).collect();
            inputs.into_iter().reduce(|sum, x| sum.add(&x)).expect("some")
        });
        let fused = fuse(graph.expect("valid"));
        assert!(fused.nodes.iter().all(|node| node.inputs.len() <= MOST_OPERANDS));
        assert_eq!(fused.nodes.len(), 4);
    }
}
