//! Recomputes cheap forward results in the backward pass instead of keeping them: results of norms,
//! activations, dropout, sums, products, concatenations and embeddings. Each costs one pass over memory, and
//! the same kernels run on the same bits.

use std::collections::BTreeMap;

use crate::graph::{Binary, Class, Graph, Node, Op, Phase, Unary, ValueId};

/// Operations that cost one pass over memory for their first result. Other results, such as a row's
/// statistics, are small and stay in memory.
fn cheap(op: &Op) -> bool {
    matches!(
        op,
        Op::BatchNorm(_)
            | Op::RowNorm { .. }
            | Op::Unary(Unary::Relu | Unary::Clamp(..) | Unary::Gelu | Unary::GeluTanh | Unary::Silu)
            | Op::Dropout { .. }
            | Op::Embedding
            | Op::Binary(Binary::Add | Binary::Mul)
            | Op::Concat { .. }
            | Op::Slice { .. }
            | Op::Reshape(_)
    )
}

/// Clones cheap forward operations into the backward half wherever keeping their operands takes less memory
/// than keeping their results. Each value is recomputed at most once, when the backward pass first needs it. With `codes`, results
/// of ReLUs and clamps are kept: in 8 or 4 bits, beside a mask, which cannot be recomputed from codes.
pub(crate) fn recompute_cheap(mut graph: Graph, codes: bool) -> Graph {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut planner = Planner::new(graph, &nodes, codes);
    ValueId::all(planner.graph.values.len()).for_each(|id| planner.decide(id, &nodes));
    let mut rewritten = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let mut node = node.clone();
        if node.phase != Phase::Forward {
            for id in &mut node.inputs {
                *id = planner.available(*id, &nodes, &mut rewritten);
            }
        }
        rewritten.push(node);
    }
    planner.graph.nodes = rewritten;
    planner.graph
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// Not read after the forward pass.
    Dead,
    /// Stays in memory until the backward pass has read it.
    Saved,
    /// Is recomputed in the backward pass.
    Recomputed,
}

struct Planner {
    graph: Graph,
    /// For each value, the forward operation that computes it as its first result.
    producer: Vec<Option<usize>>,
    decision: Vec<Decision>,
    /// Values that a cheap operation computes and the backward pass reads, not yet decided.
    open: Vec<bool>,
    again: BTreeMap<ValueId, ValueId>,
}

impl Planner {
    fn new(graph: Graph, nodes: &[Node], codes: bool) -> Self {
        let count = graph.values.len();
        let mut producer = vec![None; count];
        let mut decision = vec![Decision::Dead; count];
        let mut open = vec![false; count];
        for (i, node) in nodes.iter().enumerate() {
            if node.phase == Phase::Forward {
                node.outputs.iter().take(1).for_each(|id| producer[id.index()] = Some(i));
            }
        }
        let stays = |class: Class| class.is_persistent() || class == Class::Input;
        for (id, value) in graph.ids().filter(|(_, value)| stays(value.class)) {
            debug_assert!(producer[id.index()].is_none() && stays(value.class));
            decision[id.index()] = Decision::Saved;
        }
        for node in nodes.iter().filter(|node| node.phase != Phase::Forward) {
            for id in &node.inputs {
                let mut id = *id;
                let made_by = |id: ValueId| producer[id.index()].map(|p: usize| &nodes[p]);
                // A view is free: the decision is made for the value that it views.
                while let Some(view) = made_by(id).filter(|node| matches!(node.op, Op::Reshape(_))) {
                    decision[id.index()] = Decision::Recomputed;
                    id = view.inputs[0];
                }
                match made_by(id) {
                    Some(Node { op: Op::Unary(f), .. }) if codes && f.has_two_slopes() => {
                        decision[id.index()] = Decision::Saved;
                    }
                    Some(node) if cheap(&node.op) => open[id.index()] = true,
                    _ => decision[id.index()] = Decision::Saved,
                }
            }
        }
        for (_, id) in &graph.outputs {
            decision[id.index()] = Decision::Saved;
            open[id.index()] = false;
        }
        Self { graph, producer, decision, open, again: BTreeMap::new() }
    }

    /// Decides one value. Decisions depend on earlier ones: call this in the order of the forward pass.
    fn decide(&mut self, id: ValueId, nodes: &[Node]) {
        if !self.open[id.index()] {
            return;
        }
        let mut leaves = Vec::new();
        self.leaves(id, nodes, &mut leaves);
        let extra: u64 = leaves.iter().map(|leaf| self.graph.value(*leaf).bytes()).sum();
        let own = self.graph.value(id).bytes();
        self.decision[id.index()] = if extra < own {
            leaves.iter().for_each(|leaf| self.decision[leaf.index()] = Decision::Saved);
            Decision::Recomputed
        } else {
            Decision::Saved
        };
    }

    /// Values that must be kept in addition, so that `id` can be recomputed.
    fn leaves(&self, id: ValueId, nodes: &[Node], list: &mut Vec<ValueId>) {
        let Some(p) = self.producer[id.index()] else { return };
        for input in &nodes[p].inputs {
            let made_cheaply = self.producer[input.index()].is_some_and(|p| cheap(&nodes[p].op));
            match self.decision[input.index()] {
                Decision::Saved | Decision::Recomputed => {}
                Decision::Dead if made_cheaply => self.leaves(*input, nodes, list),
                Decision::Dead if !list.contains(input) => list.push(*input),
                Decision::Dead => {}
            }
        }
    }

    /// The value that the backward pass reads for `id`: the kept value, or its recomputed copy.
    fn available(&mut self, id: ValueId, nodes: &[Node], rewritten: &mut Vec<Node>) -> ValueId {
        let Some(p) = self.producer.get(id.index()).copied().flatten() else { return id };
        if self.decision[id.index()] == Decision::Saved {
            return id;
        }
        if let Some(again) = self.again.get(&id) {
            return *again;
        }
        let mut node = nodes[p].clone();
        for input in &mut node.inputs {
            *input = self.available(*input, nodes, rewritten);
        }
        node.outputs = nodes[p].outputs.iter().map(|output| self.copy_of(*output)).collect();
        node.phase = Phase::Backward;
        let again = node.outputs[0];
        self.again.insert(id, again);
        rewritten.push(node);
        again
    }

    fn copy_of(&mut self, id: ValueId) -> ValueId {
        self.graph.derive(id, "again", |value| value.again = true)
    }
}
