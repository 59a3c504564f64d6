//! Gradients of tables of which rows are looked up, over the parts of a batch. Where all parts together look up at most as many
//! rows as the table has, the gradients of these rows are kept in place of tables, and are what ranks exchange. They are added
//! last, in the order of the parts, so that the rest of the gradient, such as that of a tied output layer, does not wait for the
//! end of the backward pass.

use std::collections::{BTreeMap, BTreeSet};

use super::exchange::{Exchanges, SentParts};
use crate::graph::{Graph, Node, Op, Share, ValueId};

/// The lookups of all tables, by parameter.
#[derive(Default)]
pub(super) struct Lookups {
    tables: BTreeMap<ValueId, Table>,
}

struct Table {
    /// The gradient of the table, of which no operation is left that computes it.
    gradient: ValueId,
    /// The rest of it.
    rest: Option<ValueId>,
    lookups: Vec<Lookup>,
}

struct Lookup {
    /// The operation that adds the gradients of the rows.
    node: Node,
    /// Its ids and the gradients of the rows, in each part.
    parts: [Vec<ValueId>; 2],
}

impl Lookups {
    /// Takes the operations that add gradients of rows out of `nodes`, where `parts` parts of the batch look up at most as many rows
    /// as there are. `gradients` holds pairs of a parameter and its gradient.
    pub(super) fn take(
        graph: &Graph,
        nodes: &mut Vec<Node>,
        gradients: &[(ValueId, ValueId)],
        parts: u32,
    ) -> Self {
        let mut makers = BTreeMap::new();
        let mut readers = vec![0u32; graph.values.len()];
        for (n, node) in nodes.iter().enumerate() {
            if matches!(node.op, Op::EmbeddingGrad { .. }) {
                makers.insert(node.outputs[0], n);
            }
            node.inputs.iter().for_each(|id| readers[id.index()] += 1);
        }
        gradients.iter().for_each(|(_, id)| readers[id.index()] += 1);
        let mut taken = BTreeSet::new();
        let mut tables = BTreeMap::new();
        for &(parameter, gradient) in gradients {
            let (mut rest, mut found, mut ids) = (Some(gradient), Vec::new(), 0);
            while let Some(&n) = rest.filter(|id| readers[id.index()] == 1).and_then(|id| makers.get(&id)) {
                ids += graph.value(nodes[n].inputs[0]).shape.numel();
                rest = nodes[n].inputs.get(2).copied();
                found.push(n);
            }
            let rows = graph.value(gradient).shape.dims().first().map_or(0, |rows| *rows as u64);
            if found.is_empty() || ids.saturating_mul(u64::from(parts)) > rows {
                continue;
            }
            taken.extend(found.iter().copied());
            let lookup = |n: &usize| Lookup { node: nodes[*n].clone(), parts: Default::default() };
            let lookups = found.iter().rev().map(lookup).collect();
            tables.insert(parameter, Table { gradient, rest, lookups });
        }
        let mut n = 0..;
        nodes.retain(|_| n.next().is_some_and(|n| !taken.contains(&n)));
        Self { tables }
    }

    /// Whether gradients of rows are added to the gradient of a parameter.
    pub(super) fn of(&self, parameter: ValueId) -> bool {
        self.tables.contains_key(&parameter)
    }

    /// The gradient of a parameter without that of rows; `None` if it has no other.
    pub(super) fn rest(&self, parameter: ValueId, gradient: ValueId) -> Option<ValueId> {
        self.tables.get(&parameter).map_or(Some(gradient), |table| table.rest)
    }

    /// Notes the values of the next part of this rank.
    pub(super) fn computed(&mut self, at: impl Fn(&ValueId) -> ValueId) {
        for lookup in self.tables.values_mut().flat_map(|table| &mut table.lookups) {
            let (node, parts) = (&lookup.node, &mut lookup.parts);
            parts.iter_mut().zip(&node.inputs).for_each(|(list, id)| list.push(at(id)));
        }
    }

    fn lists(&mut self) -> Vec<&mut Vec<ValueId>> {
        let lookups = self.tables.values_mut().flat_map(|table| &mut table.lookups);
        lookups.flat_map(|lookup| &mut lookup.parts).collect()
    }

    /// Sends the ids and gradients of rows to the other ranks.
    pub(super) fn send(&mut self, graph: &mut Graph, exchanges: &Exchanges) -> Option<SentParts> {
        let lists = self.lists();
        exchanges.send_parts(graph, &lists)
    }

    /// Receives those of all ranks, and adds them to the sums of the gradients of their parameters, or to the shares of them that
    /// `share` returns.
    pub(super) fn add_to(
        mut self,
        sums: &mut BTreeMap<ValueId, ValueId>,
        sent: Option<SentParts>,
        (graph, exchanges): (&mut Graph, &Exchanges),
        share: impl Fn(&Graph, ValueId) -> Option<Share>,
    ) {
        if let Some(sent) = sent {
            exchanges.receive_parts(graph, &sent, self.lists());
        }
        for (parameter, table) in &self.tables {
            let share = share(graph, *parameter);
            let parts = table.lookups.first().map_or(0, |lookup| lookup.parts[0].len());
            for (part, lookup) in
                (0..parts).flat_map(|part| table.lookups.iter().map(move |lookup| (part, lookup)))
            {
                let name = format!("rows{}", graph.values.len());
                let sum = graph.derive(table.gradient, &name, |value| {
                    share.into_iter().for_each(|share| value.keep_share(share));
                });
                let mut node = lookup.node.clone();
                if let Op::EmbeddingGrad { share: of, .. } = &mut node.op {
                    *of = share;
                }
                node.inputs = lookup.parts.iter().map(|list| list[part]).collect();
                node.inputs.extend(sums.insert(*parameter, sum));
                node.outputs = vec![sum];
                graph.nodes.push(node);
            }
        }
    }
}
