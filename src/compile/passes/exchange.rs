//! Exchanges between ranks, as operations of the graph. The same exchanges in the same order on all ranks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::Location;
use std::sync::Arc;

use super::fuse_updates::is_small;
use super::lookup_grads::Lookups;
use crate::compile::shares::dealt;
use crate::compile::{Parallel, Shard};
use crate::dtype::DType;
use crate::graph::{
    Binary, Class, Exchange, ExchangeKind, Graph, Node, Op, Param, Phase, Sharded, Share, Value, ValueId,
};
use crate::shape::Shape;

use super::Parts;

/// Words of a share are a multiple of this, so that sums of shares read vec4.
pub(super) const SHARE_WORDS: u64 = 4;

/// Adds sends and receives to a graph. [`order_exchanges`] then adds tokens.
pub(super) struct Exchanges {
    /// The number of parts of each rank.
    counts: Vec<u32>,
}

impl Exchanges {
    pub(super) fn new(counts: Vec<u32>) -> Self {
        Self { counts }
    }

    fn ranks(&self) -> u32 {
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

    /// Of all ranks, a bit for each without a part in a round.
    fn silent(&self, round: u32) -> u64 {
        let silent = (0..self.ranks()).filter(|rank| !self.takes_part(*rank, round));
        silent.fold(0, |all, rank| all | 1 << rank)
    }

    /// Sends values, each to its place among the words.
    fn send(&self, graph: &mut Graph, kind: ExchangeKind, share: u64, values: &[(ValueId, u64)]) -> u32 {
        let exchange = add_exchange(graph, kind, self.ranks(), share);
        values.iter().for_each(|&(value, start)| send(graph, (exchange, start), value, None));
        exchange
    }

    /// Each list has the values of this rank's parts; afterwards, those of all parts in their order.
    pub(super) fn gather_parts(&self, graph: &mut Graph, lists: Vec<&mut Vec<ValueId>>) {
        if let Some(sent) = self.send_parts(graph, &lists) {
            self.receive_parts(graph, &sent, lists);
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
    graph.exchanges.push(Exchange { kind, ranks, share, silent: 0, buffer: 0 });
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

/// The sum of two values.
pub(super) fn added(graph: &mut Graph, before: ValueId, next: ValueId) -> ValueId {
    let name = format!("sum{}", graph.values.len());
    let sum = graph.derive(next, &name, |_| ());
    graph.nodes.push(node(Op::Binary(Binary::Add), vec![before, next], vec![sum]));
    sum
}

pub(super) fn new_token(graph: &mut Graph) -> ValueId {
    let name = format!("token{}", graph.values.len());
    graph.add_value(Value::new(name, Shape::from([]), DType::F32, Class::Workspace))
}

pub(super) fn node(op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>) -> Node {
    let (layer, phase, at) = (Arc::from(""), Phase::Backward, Location::caller());
    Node { op, inputs, outputs, layer, phase, at }
}

/// Exchanges of each kind between whose sends and receives others run.
const IN_FLIGHT: u32 = 2;

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

/// Sums of gradients over the parts of all ranks. Each rank adds up its share of a bucket of gradients, in the order of
/// the parts, and sends the sum to the others, or keeps it where it alone updates these elements.
pub(super) struct Sums {
    buckets: Vec<Bucket>,
    rank: u32,
    /// Exchanges of buckets that are not received yet, in the order of their sends.
    sent: VecDeque<(u32, usize)>,
    /// The sum of each gradient, or of this rank's share of it.
    sums: BTreeMap<ValueId, ValueId>,
}

/// What decides which gradients are exchanged together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// Whether each rank updates its share of the parameters.
    shared: bool,
    /// Whether each rank needs whole gradients.
    whole: bool,
    /// Whether gradients of rows are added to the sums.
    lookups: bool,
    /// Whether there is a gradient to sum up, besides that of rows.
    summed: bool,
    /// How shared parameters are stored.
    dtype: DType,
}

/// What a rank computes in a round.
pub(super) enum Part<'a> {
    /// A part, in which this names the values.
    Of(&'a dyn Fn(&ValueId) -> ValueId),
    /// Nothing. It sends a value without elements, so that it receives what others send in the same order as they do.
    None(ValueId),
}

/// Gradients that are exchanged together.
struct Bucket {
    kind: Kind,
    /// Pairs of a parameter and its gradient, each with the words before it.
    gradients: Vec<(ValueId, ValueId, u64)>,
    /// Words of each rank's share.
    share: u64,
    /// Position of the node after which all are there, if they are summed.
    after: Option<usize>,
    /// This rank's share of the sum so far.
    sum: Option<ValueId>,
    /// Number of rounds in the sum.
    rounds: u32,
}

impl Bucket {
    fn of(
        graph: &Graph,
        kind: Kind,
        gradients: &[(ValueId, ValueId)],
        after: Option<usize>,
        ranks: u32,
    ) -> Self {
        let [block, of_a_share] = if kind.shared { [Share::BLOCK; 2] } else { [1, SHARE_WORDS] };
        let (mut placed, mut all) = (Vec::new(), 0u64);
        for &(parameter, gradient) in gradients {
            placed.push((parameter, gradient, all));
            all = (all + graph.value(gradient).shape.numel()).next_multiple_of(block);
        }
        let share = all.div_ceil(u64::from(ranks)).next_multiple_of(of_a_share);
        Self { kind, gradients: placed, share, after, sum: None, rounds: 0 }
    }

    fn places(&self, at: impl Fn(&ValueId) -> ValueId) -> Vec<(ValueId, u64)> {
        self.gradients.iter().map(|(_, gradient, start)| (at(gradient), *start)).collect()
    }

    fn shared(&self, ready: ValueId, trained: bool) -> SharedBucket {
        let parameters = self.gradients.iter().map(|(parameter, _, before)| (*parameter, *before)).collect();
        SharedBucket { parameters, share: self.share, dtype: self.kind.dtype, trained, ready }
    }
}

/// Pairs of a parameter and its gradient.
type Pairs = Vec<(ValueId, ValueId)>;

/// Groups pairs by kind. A group is closed once its gradients have at least `least` bytes; the last of a kind may have fewer. Closed
/// groups come first, in that order.
fn grouped(
    graph: &Graph,
    pairs: impl Iterator<Item = (Kind, (ValueId, ValueId))>,
    least: u64,
) -> Vec<(Kind, Pairs)> {
    let mut groups = Vec::new();
    let mut open: BTreeMap<Kind, (Pairs, u64)> = BTreeMap::new();
    for (kind, pair) in pairs {
        let (list, filled) = open.entry(kind).or_default();
        list.push(pair);
        *filled += graph.value(pair.1).bytes();
        if *filled >= least {
            groups.push((kind, std::mem::take(list)));
            *filled = 0;
        }
    }
    let rest = open.into_iter().map(|(kind, (list, _))| (kind, list));
    groups.extend(rest.filter(|(_, list)| !list.is_empty()));
    groups
}

/// The elements of rank `rank`'s share of a bucket that belong to a parameter: `elements` of which `before` lie before it.
fn share_of(rank: u32, share: u64, before: u64, elements: u64) -> Share {
    let [first, end] = [0, 1].map(|next| (u64::from(rank) + next) * share);
    let [start, end] = [first, end].map(|at| at.saturating_sub(before).min(elements));
    Share { start, len: end - start }
}

/// Parameters of which each rank has a share, or updates one, and sends it to the others.
#[derive(Debug)]
pub(crate) struct SharedBucket {
    /// Each with the elements before it.
    pub(super) parameters: Vec<(ValueId, u64)>,
    /// Elements of each rank.
    pub(super) share: u64,
    /// How they are stored.
    pub(super) dtype: DType,
    /// Whether they are trained.
    pub(super) trained: bool,
    /// A value that is computed when all gradients are.
    pub(super) ready: ValueId,
}

impl SharedBucket {
    /// Frozen parameters, in the order in which operations read them.
    pub(crate) fn frozen(graph: &Graph, parallel: Parallel) -> Vec<Self> {
        let frozen = |param: &&Param| !param.trained() && !param.is_buffer() && !is_small(param);
        let mut left: BTreeSet<&str> = graph.parameters.iter().filter(frozen).map(Param::name).collect();
        let read = graph.nodes.iter().flat_map(|node| &node.inputs).filter(|id| {
            let value = graph.value(**id);
            value.class == Class::Parameter && left.remove(&*value.name)
        });
        let kind = |id| Kind {
            shared: true,
            whole: false,
            lookups: false,
            summed: false,
            dtype: graph.value(id).dtype,
        };
        let groups = grouped(graph, read.map(|&id| (kind(id), (id, id))), parallel.bucket.0);
        let bucket = |(kind, list): (Kind, Pairs)| {
            Some(Bucket::of(graph, kind, &list, None, parallel.ranks).shared(list.first()?.0, false))
        };
        groups.into_iter().filter_map(bucket).collect()
    }

    /// The buckets of a training step, for a forward pass over the same parameters: those that it does not read are added.
    pub(crate) fn of_step(graph: &mut Graph, sharded: &[Sharded]) -> Vec<Self> {
        let params = graph.parameters.clone();
        let mut bucket = |sharded: &Sharded| {
            let &Sharded { share, dtype, .. } = sharded;
            let mut trained = true;
            let mut value = |name: &str| {
                let param = params.iter().find(|param| param.name() == name);
                trained &= param.is_none_or(Param::trained);
                let known =
                    graph.ids().find(|(_, value)| value.class == Class::Parameter && value.name == name);
                known.map(|(id, _)| id).or_else(|| {
                    let value = Value::new(name, param?.shape(), dtype, Class::Parameter);
                    Some(graph.add_value(value))
                })
            };
            let parameters = sharded.parameters.iter();
            let parameters: Vec<_> =
                parameters.filter_map(|(name, before)| Some((value(name)?, *before))).collect();
            let ready = parameters.first()?.0;
            Some(Self { parameters, share, dtype, trained, ready })
        };
        sharded.iter().filter_map(&mut bucket).collect()
    }

    /// The words of some elements, a multiple of [`Share::BLOCK`].
    pub(super) fn words(&self, elements: u64) -> u64 {
        self.dtype.bytes(elements) / 4
    }

    /// This rank's share of each parameter.
    pub(crate) fn shares<'a>(
        &'a self,
        graph: &'a Graph,
        rank: u32,
    ) -> impl Iterator<Item = (ValueId, Share)> + 'a {
        let of = move |&(id, before): &(ValueId, u64)| {
            (id, share_of(rank, self.share, before, graph.value(id).shape.numel()))
        };
        self.parameters.iter().map(of)
    }
}

impl Sums {
    /// Buckets of at least [`Parallel::bucket`](crate::compile::Parallel::bucket), except for the last of each kind, in the
    /// order in which `nodes` compute the gradients; none with one rank. `read` has the values of which the host reads gradients.
    pub(super) fn new(
        graph: &Graph,
        nodes: &[Node],
        [gradients, read]: [&[(ValueId, ValueId)]; 2],
        lookups: &Lookups,
        parts: &Parts,
    ) -> Self {
        let mut made = vec![0; graph.values.len()];
        for (n, node) in nodes.iter().enumerate() {
            node.outputs.iter().for_each(|id| made[id.index()] = n);
        }
        let ranks = parts.parallel.ranks;
        let rest =
            |&(id, gradient): &(ValueId, ValueId)| (id, lookups.rest(id, gradient).unwrap_or(gradient));
        let mut gradients: Vec<_> = gradients.iter().filter(|_| ranks > 1).map(rest).collect();
        gradients.sort_by_key(|(_, id)| (made[id.index()], *id));
        let params: BTreeMap<&str, &Param> =
            graph.parameters.iter().map(|param| (param.name(), param)).collect();
        let kind = |i: usize, (parameter, gradient): (ValueId, ValueId)| {
            let param = params.get(&*graph.value(parameter).name);
            // Small ones are updated together: in one dispatch, on each rank.
            let shared = parts.parallel.shard != Shard::None && param.is_some_and(|param| !is_small(param));
            let twice = [i.wrapping_sub(1), i + 1]
                .iter()
                .any(|&j| gradients.get(j).is_some_and(|other| other.1 == gradient));
            let shared = shared && !twice;
            let whole = !shared || parts.whole_gradients || read.iter().any(|(id, _)| *id == parameter);
            let stored = param.filter(|_| shared).map(|param| param.stored_as(parts.weights));
            let summed = lookups.rest(parameter, gradient).is_some();
            Kind {
                shared,
                whole,
                lookups: lookups.of(parameter),
                summed,
                dtype: stored.unwrap_or(DType::F32),
            }
        };
        let first = |i: &usize| *i == 0 || gradients[i - 1].1 != gradients[*i].1;
        let pairs = (0..gradients.len()).filter(first).map(|i| (kind(i, gradients[i]), gradients[i]));
        let bucket = |(kind, list): (Kind, Pairs)| {
            let after = list.last().map(|(_, gradient)| made[gradient.index()]).filter(|_| kind.summed);
            Bucket::of(graph, kind, &list, after, ranks)
        };
        let buckets = grouped(graph, pairs, parts.parallel.bucket.0).into_iter().map(bucket).collect();
        Self { buckets, rank: parts.parallel.rank, sent: VecDeque::new(), sums: BTreeMap::new() }
    }

    /// Sends what is complete after node `n` of this round.
    pub(super) fn computed(
        &mut self,
        n: usize,
        round: u32,
        (graph, exchanges): (&mut Graph, &Exchanges),
        part: &Part<'_>,
    ) {
        for i in 0..self.buckets.len() {
            let bucket = &self.buckets[i];
            if bucket.after == Some(n) {
                let places = match part {
                    Part::Of(at) => bucket.places(at),
                    Part::None(empty) => vec![(*empty, 0)],
                };
                let exchange = exchanges.send(graph, ExchangeKind::Scatter, bucket.share, &places);
                graph.exchanges[exchange as usize].silent = exchanges.silent(round);
                self.sent.push_back((exchange, i));
                self.settle(graph, exchanges, IN_FLIGHT as usize - 1);
            }
        }
    }

    /// Receives what is left; returns the sum of the gradient of each parameter without that of rows, or of this rank's share of it.
    pub(super) fn finish(
        &mut self,
        (graph, exchanges): (&mut Graph, &Exchanges),
        gradients: &[(ValueId, ValueId)],
        lookups: &Lookups,
    ) -> BTreeMap<ValueId, ValueId> {
        self.settle(graph, exchanges, 0);
        let sum = |&(parameter, gradient): &(ValueId, ValueId)| {
            Some((parameter, *self.sums.get(&lookups.rest(parameter, gradient)?)?))
        };
        gradients.iter().filter_map(sum).collect()
    }

    /// This rank's share of the gradient of a parameter, if it has no more of it.
    pub(super) fn share(&self, graph: &Graph, parameter: ValueId) -> Option<Share> {
        let kept = self.buckets.iter().filter(|bucket| bucket.kind.shared && !bucket.kind.whole);
        let all = kept.flat_map(|bucket| bucket.gradients.iter().map(|gradient| (bucket.share, gradient)));
        let mut of_it = all.filter(|(_, (id, ..))| *id == parameter);
        let (share, (_, gradient, before)) = of_it.next()?;
        Some(share_of(self.rank, share, *before, graph.value(*gradient).shape.numel()))
    }

    /// The parameters whose updates are shared. `sums` has the gradient of each, or this rank's share of it.
    pub(super) fn shared(&self, sums: &BTreeMap<ValueId, ValueId>) -> Vec<SharedBucket> {
        let shared = self.buckets.iter().filter(|bucket| bucket.kind.shared).filter_map(|bucket| {
            let last = bucket.gradients.last().map(|(parameter, ..)| sums[parameter]);
            let ready = if bucket.kind.whole || bucket.kind.lookups { last } else { bucket.sum };
            Some(bucket.shared(ready?, true))
        });
        shared.collect()
    }

    /// Receives until at most `most` exchanges of each kind are left, in the order of their sends.
    fn settle(&mut self, graph: &mut Graph, exchanges: &Exchanges, most: usize) {
        let kind = |graph: &Graph, exchange: u32| graph.exchanges[exchange as usize].kind;
        let left = |graph: &Graph, queue: &VecDeque<(u32, usize)>, of| {
            queue.iter().filter(|(exchange, _)| kind(graph, *exchange) == of).count() > most
        };
        while [ExchangeKind::Scatter, ExchangeKind::Gather].iter().any(|of| left(graph, &self.sent, *of)) {
            let Some((exchange, i)) = self.sent.pop_front() else { break };
            match kind(graph, exchange) {
                ExchangeKind::Scatter => self.receive_parts(graph, exchanges, exchange, i),
                ExchangeKind::Gather => {
                    for &(_, id, start) in &self.buckets[i].gradients {
                        let like = graph.value(id).clone();
                        let sum = receive(graph, (exchange, start), like);
                        self.sums.insert(id, sum);
                    }
                }
            }
        }
    }

    /// Adds up this rank's share of a bucket. Sends or keeps the sum over all parts.
    fn receive_parts(&mut self, graph: &mut Graph, exchanges: &Exchanges, exchange: u32, i: usize) {
        let bucket = &mut self.buckets[i];
        let shape = Shape::from([bucket.share as usize]);
        let like = Value { shape, ..graph.value(bucket.gradients[0].1).clone() };
        let round = bucket.rounds;
        for rank in (0..exchanges.ranks()).filter(|rank| exchanges.takes_part(*rank, round)) {
            let from = (exchange, u64::from(rank) * bucket.share);
            let part = receive(graph, from, like.clone());
            let Some(sum) = bucket.sum.replace(part) else { continue };
            bucket.sum = Some(added(graph, sum, part));
        }
        bucket.rounds += 1;
        let Some(sum) = bucket.sum.filter(|_| bucket.rounds == exchanges.rounds()) else { return };
        if bucket.kind.whole {
            let exchange = exchanges.send(graph, ExchangeKind::Gather, bucket.share, &[(sum, 0)]);
            self.sent.push_back((exchange, i));
        } else {
            self.keep_shares(graph, i, sum);
        }
    }

    /// Cuts this rank's share of a bucket into those of its parameters.
    fn keep_shares(&mut self, graph: &mut Graph, i: usize, sum: ValueId) {
        let (bucket, rank) = (&self.buckets[i], self.rank);
        for &(_, gradient, before) in &bucket.gradients {
            let Share { start: first, len } = share_of(rank, bucket.share, before, words(graph, gradient));
            let start = if len == 0 { 0 } else { before + first - u64::from(rank) * bucket.share };
            let [start, len] = [start, len].map(|words| words as usize);
            let suffix = format!("share{}", graph.values.len());
            let own = Share { start: first, len: len as u64 };
            let share = graph.derive(gradient, &suffix, |value| value.keep_share(own));
            graph.nodes.push(node(Op::Slice { axis: 0, start, len }, vec![sum], vec![share]));
            self.sums.insert(gradient, share);
        }
    }
}

fn words(graph: &Graph, id: ValueId) -> u64 {
    graph.value(id).bytes() / 4
}
