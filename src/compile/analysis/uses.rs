//! Producers and readers of each value, for rewrites that move an operation to the reader of its result.

use std::collections::BTreeSet;

use crate::graph::{Graph, Node, Op, ValueId};

pub(crate) struct Uses {
    /// The position of the node that produces each value. For a view, the producer of the viewed value.
    pub made: Vec<Option<usize>>,
    /// For each value, the value that owns its memory.
    pub root: Vec<ValueId>,
    /// For a view, the value it was made of.
    pub of: Vec<Option<ValueId>>,
    /// Number of nodes that read each value; the host counts as one.
    pub readers: Vec<u32>,
    /// The last node that reads each value's memory.
    last_read: Vec<usize>,
    /// The first position at which each value could be computed: after the last operand of its producer.
    possible: Vec<usize>,
}

impl Uses {
    pub(crate) fn new(graph: &Graph, nodes: &[Node]) -> Self {
        let count = graph.values.len();
        let mut uses = Self {
            made: vec![None; count],
            root: ValueId::all(count).collect(),
            of: vec![None; count],
            readers: vec![0; count],
            last_read: vec![0; count],
            possible: vec![0; count],
        };
        for (n, node) in nodes.iter().enumerate() {
            if let (Op::Reshape(_), [from], [to]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
                uses.root[to.index()] = uses.root[from.index()];
                uses.made[to.index()] = uses.made[from.index()];
                uses.of[to.index()] = Some(*from);
            } else {
                let operands = node.inputs.iter().filter_map(|id| uses.made[id.index()]);
                let possible = operands.max().map_or(0, |last| last + 1);
                for id in &node.outputs {
                    uses.made[id.index()] = Some(n);
                    uses.possible[id.index()] = possible;
                }
            }
            for id in node.inputs.iter().collect::<BTreeSet<_>>() {
                uses.readers[id.index()] += 1;
                uses.read(*id, n);
            }
        }
        for (_, id) in &graph.outputs {
            uses.readers[id.index()] += 1;
            uses.read(*id, nodes.len());
        }
        uses
    }

    /// Records that node `n` reads `id`.
    pub(crate) fn read(&mut self, id: ValueId, n: usize) {
        let last = &mut self.last_read[self.root[id.index()].index()];
        *last = (*last).max(n);
    }

    /// Whether no two of these values share memory.
    pub(crate) fn apart(&self, ids: &[ValueId]) -> bool {
        ids.iter().map(|id| self.root[id.index()]).collect::<BTreeSet<_>>().len() == ids.len()
    }

    /// Whether moving node `at` to node `n` does not need more memory. Node `at` reads `before` and produces
    /// `id`; node `n` reads `after`. True if all of `after` is available at `at`, so that both may run there,
    /// or if the operands that no node from `n` on reads are not larger than the result.
    pub(crate) fn spares(
        &self,
        graph: &Graph,
        [at, n]: [usize; 2],
        before: &[ValueId],
        id: ValueId,
        after: &[ValueId],
    ) -> bool {
        let root = |id: &ValueId| self.root[id.index()];
        let own = graph.value(id).bytes();
        let waits = after.iter().map(root).filter(|other| *other != root(&id)).any(|other| {
            // Small values are computed as early as possible and count as available.
            let small = graph.value(other).bytes() <= own / 8 && self.possible[other.index()] <= at;
            !small && self.made[other.index()].is_some_and(|made| made > at)
        });
        let dies = |operand: &&ValueId| {
            let of = root(operand);
            !graph.value(of).class.is_persistent()
                && self.last_read[of.index()] < n
                && !after.iter().any(|other| root(other) == of)
        };
        let held: u64 = before.iter().filter(dies).map(|id| graph.value(*id).bytes()).sum();
        // Tolerates an additional operand as small as a bias.
        !waits || held <= own + own / 8
    }
}
