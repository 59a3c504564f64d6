//! Recomputes forward operations in the backward half, as a script specifies.

use crate::graph::{Graph, Node, Op, Phase, ValueId};

/// One operation of a script. Views are not listed: they are created where they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleEntry {
    /// Index of the node in the graph.
    pub node: u32,
    /// Whether it ran before in this script.
    pub again: bool,
    /// Bit `i`: later operations read result `i` of this run, not that of an earlier run.
    pub fresh: u64,
    /// Bit `i`: result `i` is copied to host memory when it is computed, and copied back instead of being
    /// recomputed.
    pub away: u64,
}

impl ScheduleEntry {
    /// The first run of an operation.
    pub(crate) fn first(node: u32) -> Self {
        Self { node, again: false, fresh: u64::MAX, away: 0 }
    }

    /// Whether it copies results back from host memory and computes nothing.
    pub(crate) fn brings_back(&self) -> bool {
        self.again && self.away != 0
    }
}

/// The graph with the steps of `script` as its nodes, in order. The script must run every node that is not a
/// view once, after its operands. Each later run gets values of its own, and later steps read those that are
/// fresh.
pub(crate) fn rematerialize(mut graph: Graph, script: &[ScheduleEntry]) -> Graph {
    let nodes = std::mem::take(&mut graph.nodes);
    let outputs = graph.outputs.clone();
    let mut rewrite = Again::new(graph, &nodes);
    for step in script {
        rewrite.run(&nodes, step);
    }
    for (_, id) in outputs {
        rewrite.resolve(id, &nodes);
    }
    rewrite.graph.nodes = rewrite.written;
    rewrite.graph
}

/// Name suffix of a value that was copied back from host memory.
pub(crate) const BACK: &str = "back";

struct Again {
    graph: Graph,
    written: Vec<Node>,
    /// The value that currently holds the contents of each value.
    current: Vec<ValueId>,
    /// The node that creates each value, if the value is a view.
    view: Vec<Option<usize>>,
    /// The operand that each view was last created from.
    made_of: Vec<Option<ValueId>>,
    runs: Vec<u32>,
}

impl Again {
    fn new(graph: Graph, nodes: &[Node]) -> Self {
        let mut view = vec![None; graph.values.len()];
        for (n, node) in nodes.iter().enumerate().filter(|(_, node)| graph.is_view(node)) {
            view[node.outputs[0].index()] = Some(n);
        }
        let current = graph.ids().map(|(id, _)| id).collect();
        let made_of = vec![None; graph.values.len()];
        let runs = vec![0; graph.values.len()];
        Self { written: Vec::with_capacity(nodes.len()), graph, current, view, made_of, runs }
    }

    fn run(&mut self, nodes: &[Node], step: &ScheduleEntry) {
        let mut node = nodes[step.node as usize].clone();
        for id in &mut node.inputs {
            *id = self.resolve(*id, nodes);
        }
        if step.brings_back() {
            return self.bring(&node, step.away);
        }
        if step.again {
            node.phase = Phase::Backward;
            for (i, id) in node.outputs.iter_mut().enumerate() {
                let copy = self.copy_of(*id);
                if step.fresh >> i & 1 == 1 {
                    self.current[id.index()] = copy;
                }
                *id = copy;
            }
        }
        let away = taken(&node.outputs, step.away);
        let leaves = away.map(|id| Node {
            op: Op::ToHost { slot: id.index() as u32 },
            inputs: vec![id],
            outputs: Vec::new(),
            ..node.clone()
        });
        let leaves: Vec<Node> = leaves.collect();
        self.written.push(node);
        self.written.extend(leaves);
    }

    /// Copies results of a node back from host memory, as values of their own.
    fn bring(&mut self, node: &Node, away: u64) {
        for id in taken(&node.outputs, away) {
            let back = self.graph.derive(id, BACK, |_| ());
            self.current[id.index()] = back;
            self.written.push(Node {
                op: Op::FromHost { slot: id.index() as u32 },
                inputs: Vec::new(),
                outputs: vec![back],
                phase: Phase::Backward,
                ..node.clone()
            });
        }
    }

    /// The value to read for `id`. A view is created again if its operand has changed.
    fn resolve(&mut self, id: ValueId, nodes: &[Node]) -> ValueId {
        let Some(n) = self.view[id.index()] else { return self.current[id.index()] };
        let of = self.resolve(nodes[n].inputs[0], nodes);
        if self.made_of[id.index()] != Some(of) {
            let first = self.made_of[id.index()].is_none();
            self.made_of[id.index()] = Some(of);
            let (output, phase) =
                if first { (id, nodes[n].phase) } else { (self.copy_of(id), Phase::Backward) };
            self.current[id.index()] = output;
            let node = Node { inputs: vec![of], outputs: vec![output], phase, ..nodes[n].clone() };
            self.written.push(node);
        }
        self.current[id.index()]
    }

    fn copy_of(&mut self, id: ValueId) -> ValueId {
        let runs = &mut self.runs[id.index()];
        *runs += 1;
        let suffix = if *runs > 1 { format!("again{runs}") } else { "again".to_owned() };
        self.graph.derive(id, &suffix, |value| value.again = true)
    }
}

/// The values with their bit set in `bits`.
fn taken(ids: &[ValueId], bits: u64) -> impl Iterator<Item = ValueId> {
    ids.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, id)| *id)
}
