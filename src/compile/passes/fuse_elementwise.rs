//! Fuses chains of elementwise functions into one operation. Intermediate results are neither written nor
//! read, and need no memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::eliminate_dead_code;
use crate::compile::analysis::Uses;
use crate::dtype::DType;
use crate::graph::{Arg, FusedElementwise, FusedOp, Graph, Node, Op, ValueId, can_fuse, only_reads, reads};

/// Maximum number of links in a chain. Longer chains would save little more, and their kernels take longer to
/// compile.
const MOST_LINKS: usize = 12;

/// Fuses each elementwise function with the functions before it that have no other reader. Operations that
/// only change how an operand is read, such as a broadcast, are fused into all their readers. No kernel binds
/// more than `buffers` buffers.
pub(crate) fn fuse_elementwise(mut graph: Graph, buffers: usize) -> Graph {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut fuse = Fuse::new(graph, &nodes, buffers);
    for (n, node) in nodes.into_iter().enumerate() {
        let node = fuse.joined(n, node);
        fuse.nodes.push(Some(node));
    }
    fuse.graph.nodes = fuse.nodes.into_iter().flatten().collect();
    eliminate_dead_code(fuse.graph)
}

/// A chain under construction.
#[derive(Clone)]
pub(super) struct Draft {
    pub links: Vec<FusedOp>,
    pub operands: Vec<ValueId>,
}

impl Draft {
    pub(super) fn of(node: &Node) -> Self {
        match &node.op {
            Op::Fused(chain) => Self { links: chain.links().to_vec(), operands: node.inputs.clone() },
            op => {
                let mut draft = Self { links: Vec::new(), operands: Vec::new() };
                let args = node.inputs.iter().map(|id| draft.operand(*id)).collect();
                draft.links.push(FusedOp { op: op.clone(), args });
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

    /// The chain with `first` before it; the result of `first` is operand `k`.
    fn after(&self, first: &Self, k: usize) -> Self {
        let mut joined = first.clone();
        let last = Arg::Result(first.links.len() - 1);
        for link in &self.links {
            let moved = |arg: &Arg| match *arg {
                Arg::Operand(i) if i == k => last,
                Arg::Operand(i) => joined.operand(self.operands[i]),
                Arg::Result(j) => Arg::Result(first.links.len() + j),
            };
            let args = link.args.iter().map(moved).collect();
            joined.links.push(FusedOp { op: link.op.clone(), args });
        }
        joined
    }
}

struct Fuse {
    graph: Graph,
    uses: Uses,
    /// Nodes written so far; `None` for an operation that was fused into a later one.
    nodes: Vec<Option<Node>>,
    /// Maximum number of buffers per kernel.
    buffers: usize,
}

impl Fuse {
    fn new(graph: Graph, nodes: &[Node], buffers: usize) -> Self {
        Self { uses: Uses::new(&graph, nodes), nodes: Vec::with_capacity(nodes.len()), graph, buffers }
    }

    fn dtype(&self, id: ValueId) -> DType {
        self.graph.value(id).dtype
    }

    fn joins(&self, node: &Node) -> bool {
        let first = node.inputs.first().map(|id| self.dtype(*id));
        node.outputs.len() == 1 && (can_fuse(&node.op, first) || matches!(node.op, Op::Fused(_)))
    }

    fn reads_only(&self, node: &Node) -> bool {
        only_reads(&node.op, node.inputs.first().map(|id| self.dtype(*id)))
    }

    /// The node fused with all producers that it can take in.
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
                Some((longer, layer)) => {
                    draft = longer;
                    k = 0;
                    // A function outside any layer takes the layer of its producer.
                    if node.layer.is_empty() {
                        node.layer = layer;
                    }
                }
                None => k += 1,
            }
        }
        if draft.links.len() > 1 {
            let shape = self.graph.value(node.outputs[0]).shape;
            node.op = Op::Fused(Arc::new(FusedElementwise::new(draft.links, shape)));
            node.inputs = draft.operands;
        }
        node
    }

    /// The draft fused with the producer of its operand `k`, and the layer of that producer. `None` if they
    /// cannot be fused, or if that would need more memory.
    fn with(&mut self, draft: &Draft, k: usize, n: usize, node: &Node) -> Option<(Draft, Arc<str>)> {
        let id = draft.operands[k];
        let at = self.uses.made[id.index()].filter(|_| self.uses.root[id.index()] == id)?;
        let first = self.nodes.get(at)?.as_ref().filter(|first| self.joins(first))?;
        let shape = |id: ValueId| self.graph.value(id).shape;
        let free = self.reads_only(first);
        let alone = self.uses.readers[id.index()] == 1 && first.phase == node.phase;
        if shape(id) != shape(node.outputs[0]) || !(free || alone) {
            return None;
        }
        let (before, layer) = (Draft::of(first), Arc::clone(&first.layer));
        let joined = draft.after(&before, k);
        if !self.fits(&joined, node)
            || !(free || self.uses.spares(&self.graph, [at, n], &before.operands, id, &draft.operands))
        {
            return None;
        }
        let readers = &mut self.uses.readers[id.index()];
        *readers -= 1;
        if *readers == 0 {
            self.nodes[at] = None;
        }
        joined.operands.iter().for_each(|operand| self.uses.read(*operand, n));
        Some((joined, layer))
    }

    /// Whether a kernel can be generated for the chain.
    fn fits(&self, draft: &Draft, node: &Node) -> bool {
        let halves: BTreeSet<_> =
            draft.operands.iter().map(|id| self.dtype(*id)).filter(|d| d.is_half()).collect();
        let result = self.graph.value(node.outputs[0]).shape;
        let shapes: Vec<_> = draft.operands.iter().map(|id| self.graph.value(*id).shape).collect();
        draft.operands.len() < self.buffers
            && draft.links.len() <= MOST_LINKS
            // No dispatch binds the same bytes twice.
            && self.uses.apart(&draft.operands)
            && halves.len() <= 1
            && reads(&draft.links, &shapes, result).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Mode, Params, Tensor, Trace};

    fn names(build: impl FnOnce(&Trace) -> Tensor) -> Vec<&'static str> {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", build).expect("valid");
        fuse_elementwise(graph, 8).nodes.iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn values_with_one_reader_are_fused_and_values_with_two_are_not() {
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
    fn broadcast_is_fused_into_all_its_readers() {
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
    fn two_views_of_one_tensor_are_not_fused() {
        let list = names(|trace| {
            let x = trace.input("x", [2, 2]).exp();
            x.reshape([4]).tanh().reshape([4]).mul(&x.reshape([4]))
        });
        assert!(!list.contains(&"tanh+mul"), "{list:?}");
    }

    /// If fused, `x + y` would wait for `late`, which is computed in between, with both operands in memory.
    #[test]
    fn fusion_does_not_extend_the_lifetime_of_operands() {
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
    fn chains_stay_within_the_buffer_limit() {
        let graph = Trace::record(&Params::new(0), Mode::Train, "y", |trace| {
            let inputs: Vec<Tensor> = (0..20).map(|i| trace.input(&format!("x{i}"), [4])).collect();
            inputs.into_iter().reduce(|sum, x| sum.add(&x)).expect("some")
        });
        let graph = graph.expect("valid");
        for (buffers, nodes) in [(8, 4), (12, 2)] {
            let fused = fuse_elementwise(graph.clone(), buffers);
            assert!(fused.nodes.iter().all(|node| node.inputs.len() < buffers));
            assert_eq!(fused.nodes.len(), nodes, "with {buffers} buffers");
        }
    }
}
