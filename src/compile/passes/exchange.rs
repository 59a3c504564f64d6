//! Exchanges between ranks, as operations of the graph. The same exchanges in the same order on all ranks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use crate::compile::Parallel;
use crate::compile::shares::dealt;
use crate::dtype::DType;
use crate::graph::{Class, Exchange, ExchangeKind, Graph, Node, Op, Phase, Share, Value, ValueId};
use crate::shape::Shape;

/// Words of a share are a multiple of this, so that sums of shares read vec4.
pub(super) const SHARE_WORDS: u64 = 4;

/// Adds sends and receives to a graph. [`order_exchanges`] then adds tokens.
pub(super) struct Exchanges {
    /// The number of parts of each rank.
    counts: Vec<u32>,
    /// The most bytes that are received as one value.
    pub(super) together: u64,
}

impl Exchanges {
    pub(super) fn new(counts: Vec<u32>, parallel: &Parallel) -> Self {
        Self { counts, together: parallel.together() }
    }

    pub(super) fn ranks(&self) -> u32 {
        self.counts.len() as u32
    }

    /// The number of parts of the ranks with the most.
    pub(super) fn rounds(&self) -> u32 {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// Whether a rank has a part in a round.
    fn takes_part(&self, rank: u32, round: u32) -> bool {
        round < self.counts[rank as usize]
    }

    /// Neighbouring ranks that have a part in a round.
    pub(super) fn runs(&self, round: u32) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for rank in (0..self.ranks()).filter(|rank| self.takes_part(*rank, round)) {
            match runs.last_mut().filter(|run| run.end == rank) {
                Some(run) => run.end += 1,
                None => runs.push(rank..rank + 1),
            }
        }
        runs
    }

    /// Of all ranks, a bit for each without a part in a round.
    pub(super) fn silent(&self, round: u32) -> u64 {
        let silent = (0..self.ranks()).filter(|rank| !self.takes_part(*rank, round));
        silent.fold(0, |all, rank| all | 1 << rank)
    }

    /// Sends values, each to its place among the words.
    pub(super) fn send(
        &self,
        graph: &mut Graph,
        kind: ExchangeKind,
        share: u64,
        values: &[(ValueId, u64)],
    ) -> u32 {
        let exchange = add_exchange(graph, kind, self.ranks(), share);
        values.iter().for_each(|&(value, start)| send(graph, (exchange, start), value, None));
        exchange
    }

    /// Each list has the values of this rank's parts; afterwards, with several ranks, those of all parts in their order, each the
    /// parts of neighbouring ranks, `[parts, elements]`. All have the same type.
    pub(super) fn gather_parts(&self, graph: &mut Graph, lists: Vec<&mut Vec<ValueId>>) {
        let all = u64::from(self.ranks()) * u64::from(self.rounds());
        let (mut groups, mut filled) = (vec![Vec::new()], 0);
        for list in lists {
            let size = 4 * all * words(graph, list[0]);
            if filled > 0 && filled + size > self.together {
                groups.push(Vec::new());
                filled = 0;
            }
            if let Some(group) = groups.last_mut() {
                group.push(list);
            }
            filled += size;
        }
        // A group is on its way while the one before is received.
        let mut before = None;
        for group in groups {
            let sent = self.send_parts(graph, &group).map(|sent| (sent, group));
            if let Some((sent, lists)) = std::mem::replace(&mut before, sent) {
                self.receive_rows(graph, &sent, lists);
            }
        }
        before.into_iter().for_each(|(sent, lists)| self.receive_rows(graph, &sent, lists));
    }

    /// Replaces the values of this rank's parts by those of neighbouring ranks, `[parts, elements]`, in the order of the parts.
    fn receive_rows(&self, graph: &mut Graph, sent: &SentParts, lists: Vec<&mut Vec<ValueId>>) {
        let SentParts { exchange, share, places } = sent;
        let Some((first, _)) = places.first() else { return };
        let shape = Shape::from([self.ranks() as usize, *share as usize]);
        let like = Value { shape, ..graph.value(*first).clone() };
        let all = receive(graph, (*exchange, 0), like);
        for (list, (like, starts)) in lists.into_iter().zip(places) {
            let columns = words(graph, *like) as usize;
            list.clear();
            for (round, start) in (0..).zip(starts) {
                for run in self.runs(round) {
                    let rows = sliced(graph, all, 0, run.start as usize, run.len());
                    list.push(sliced(graph, rows, 1, *start as usize, columns));
                }
            }
        }
    }

    /// Sends values of this rank's parts, a list of each.
    pub(super) fn send_parts(&self, graph: &mut Graph, lists: &[&mut Vec<ValueId>]) -> Option<SentParts> {
        if self.ranks() == 1 || lists.is_empty() {
            return None;
        }
        let rounds = self.rounds();
        // For each list, one of its values and where those of each round are sent from.
        let mut share = 0;
        let mut places = Vec::with_capacity(lists.len());
        for list in lists {
            let words = words(graph, list[0]);
            let starts: Vec<u64> = (0..u64::from(rounds)).map(|round| share + round * words).collect();
            share += u64::from(rounds) * words;
            places.push((list[0], starts));
        }
        let sent = lists
            .iter()
            .zip(&places)
            .flat_map(|(list, (_, starts))| list.iter().copied().zip(starts.iter().copied()));
        let sent: Vec<(ValueId, u64)> = sent.collect();
        let exchange = self.send(graph, ExchangeKind::Gather, share, &sent);
        Some(SentParts { exchange, share, places })
    }

    /// Replaces the values of this rank's parts by those of all parts in their order.
    pub(super) fn receive_parts(&self, graph: &mut Graph, sent: &SentParts, lists: Vec<&mut Vec<ValueId>>) {
        let SentParts { exchange, share, places } = sent;
        // For each rank, its values of one list after another.
        let mut all: Vec<Vec<ValueId>> = vec![Vec::new(); self.ranks() as usize];
        for (rank, received) in (0u32..).zip(&mut all) {
            for (like, starts) in places {
                for start in &starts[..self.counts[rank as usize] as usize] {
                    let from = (*exchange, u64::from(rank) * share + start);
                    let like = graph.value(*like).clone();
                    received.push(receive(graph, from, like));
                }
            }
        }
        for (i, list) in lists.into_iter().enumerate() {
            let part = |(round, rank): (u32, u32)| {
                let own = self.counts[rank as usize] as usize;
                all[rank as usize][i * own + round as usize]
            };
            *list = dealt(&self.counts).map(part).collect();
        }
    }
}

/// Values of this rank's parts that are on their way to the other ranks.
pub(super) struct SentParts {
    exchange: u32,
    /// Words of each rank.
    share: u64,
    /// For each list, one of its values and where those of each round are sent from.
    places: Vec<(ValueId, Vec<u64>)>,
}

pub(super) fn add_exchange(graph: &mut Graph, kind: ExchangeKind, ranks: u32, share: u64) -> u32 {
    graph.exchanges.push(Exchange { kind, ranks, share, silent: 0, buffer: 0, losses: 0 });
    graph.exchanges.len() as u32 - 1
}

/// Sends a value, or after its update a share of it, from a word of an exchange on.
pub(super) fn send(graph: &mut Graph, (exchange, start): (u32, u64), value: ValueId, share: Option<Share>) {
    let token = new_token(graph);
    graph.nodes.push(node(Op::Send { exchange, start, share }, vec![value], vec![token]));
}

/// Receives a value like `like`, from a word of an exchange on.
pub(super) fn receive(graph: &mut Graph, (exchange, start): (u32, u64), mut like: Value) -> ValueId {
    like.name += &format!(".received{}", graph.values.len());
    let received = graph.add_value(like);
    receive_as(graph, (exchange, start), received);
    received
}

/// Receives a value that is there, from a word of an exchange on.
pub(super) fn receive_as(graph: &mut Graph, (exchange, start): (u32, u64), id: ValueId) {
    let Value { shape, dtype, .. } = *graph.value(id);
    let token = new_token(graph);
    graph.nodes.push(node(Op::Receive { exchange, start, shape, dtype }, Vec::new(), vec![id, token]));
}

/// Receives shares like a value that some ranks sent, up to `together` bytes as one value, and adds them to a sum in the order of
/// ranks.
pub(super) fn receive_sum(
    graph: &mut Graph,
    (exchange, ranks): (u32, Range<u32>),
    like: &Value,
    together: u64,
    mut sum: Option<ValueId>,
) -> Option<ValueId> {
    let share = like.shape.numel();
    let most = (together / like.bytes().max(1)).clamp(1, MOST_TOGETHER) as u32;
    for first in ranks.clone().step_by(most as usize) {
        let rows = most.min(ranks.end - first);
        let from = (exchange, u64::from(first) * share);
        if rows == 1 && sum.is_none() {
            sum = Some(receive(graph, from, like.clone()));
            continue;
        }
        let shape = Shape::from([rows as usize, share as usize]);
        let parts = receive(graph, from, Value { shape, ..like.clone() });
        sum = Some(add_parts(graph, sum, parts, like.shape));
    }
    sum
}

/// Adds parts of this shape, one after another, to a sum.
pub(super) fn add_parts(graph: &mut Graph, sum: Option<ValueId>, parts: ValueId, shape: Shape) -> ValueId {
    let name = format!("sum{}", graph.values.len());
    let result = graph.derive(parts, &name, |value| value.shape = shape);
    let inputs = [parts].into_iter().chain(sum).collect();
    graph.nodes.push(node(Op::SumParts { shape }, inputs, vec![result]));
    result
}

/// Some of the positions along an axis of a matrix.
fn sliced(graph: &mut Graph, x: ValueId, axis: usize, start: usize, len: usize) -> ValueId {
    let shape = graph.value(x).shape;
    if len == shape.dims()[axis] {
        return x;
    }
    let name = format!("slice{}", graph.values.len());
    let slice = graph.derive(x, &name, |value| value.shape = shape.with(axis, len));
    graph.nodes.push(node(Op::Slice { axis, start, len }, vec![x], vec![slice]));
    slice
}

pub(super) fn new_token(graph: &mut Graph) -> ValueId {
    let name = format!("token{}", graph.values.len());
    graph.add_value(Value::new(name, Shape::from([]), DType::F32, Class::Workspace))
}

pub(super) fn node(op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>) -> Node {
    let (layer, phase, at) = (Arc::from(""), Phase::Backward, Location::caller());
    Node { op, inputs, outputs, layer, phase, at }
}

/// The most parts that are added at once, far fewer than the iterations at which lavapipe ends loops.
const MOST_TOGETHER: u64 = 1 << 14;

/// Exchanges of each kind between whose sends and receives others run.
pub(super) const IN_FLIGHT: u32 = 2;

/// Numbers the exchanges in the order of their sends, passes a token from each of their operations to the next, which
/// keeps that order, and shares host memory among exchanges that are over when another begins. May run again after more
/// were added.
pub(crate) fn order_exchanges(graph: &mut Graph) {
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let mut ends = vec![0; graph.exchanges.len()];
    let mut begins = ends.clone();
    let mut token = None;
    for (n, node) in graph.nodes.iter_mut().enumerate().filter(|(_, node)| node.op.exchanges()) {
        // Without the token of an earlier order.
        node.inputs.truncate(usize::from(!matches!(node.op, Op::Receive { .. })));
        if let Op::Send { exchange, .. } | Op::Receive { exchange, .. } | Op::Replace { exchange, .. } =
            &mut node.op
        {
            let next = numbers.len() as u32;
            let number = *numbers.entry(*exchange).or_insert(next);
            if number == next {
                begins[next as usize] = n;
            }
            ends[number as usize] = n;
            *exchange = number;
        }
        node.inputs.extend(token);
        token = node.outputs.last().copied();
    }
    let mut ordered = graph.exchanges.clone();
    for (old, new) in numbers {
        ordered[new as usize] = graph.exchanges[old as usize];
    }
    // For each kind, where the last exchange of each buffer ends.
    let mut buffers: [Vec<usize>; 2] = Default::default();
    for (i, exchange) in ordered.iter_mut().enumerate() {
        let ends_of = &mut buffers[exchange.kind as usize];
        let free = (0..ends_of.len()).filter(|&buffer| ends_of[buffer] < begins[i]);
        let free = free.min_by_key(|&buffer| ends_of[buffer]).filter(|_| ends_of.len() >= IN_FLIGHT as usize);
        let buffer = free.unwrap_or_else(|| {
            ends_of.push(0);
            ends_of.len() - 1
        });
        ends_of[buffer] = ends[i];
        exchange.buffer = buffer as u32;
    }
    graph.exchanges = ordered;
}

pub(super) fn words(graph: &Graph, id: ValueId) -> u64 {
    graph.value(id).bytes() / 4
}
