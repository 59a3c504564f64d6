//! Who makes and who reads each value, for rewrites that move an operation to where its result is read.

use std::collections::BTreeSet;

use crate::graph::{Graph, Node, Op, ValueId};

pub(crate) struct Uses {
    /// The node that makes each value, by its position. A view is made where the value behind it is.
    pub made: Vec<Option<usize>>,
    /// For each value the one whose memory it is a view of.
    pub root: Vec<ValueId>,
    /// The value that a view was made of.
    pub of: Vec<Option<ValueId>>,
    /// How many nodes read each value; the host counts as one.
    pub readers: Vec<u32>,
    /// The last node that reads each value's memory.
    last_read: Vec<usize>,
    /// The first position at which each value could be made: behind the last operand of the node that makes it.
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

    /// Notes that node `n` reads `id`.
    pub(crate) fn read(&mut self, id: ValueId, n: usize) {
        let last = &mut self.last_read[self.root[id.index()].index()];
        *last = (*last).max(n);
    }

    /// Whether all of these lie in memory of their own.
    pub(crate) fn apart(&self, ids: &[ValueId]) -> bool {
        ids.iter().map(|id| self.root[id.index()]).collect::<BTreeSet<_>>().len() == ids.len()
    }

    /// Whether no more is alive if node `at`, which reads `before` and makes `id`, runs only with node `n`, which reads `after`:
    /// either all of that is there at `at`, so that both may run then, or what nobody else reads from `n` on is no more than
    /// the result.
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
            // A few numbers are made as early as can be.
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
        // A bias or the like more is nothing.
        !waits || held <= own + own / 8
    }
}
