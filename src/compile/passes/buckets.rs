//! Buckets of gradients and of parameters that ranks exchange together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Parts;
use super::exchange::{Exchanges, IN_FLIGHT, SHARE_WORDS, node, receive, receive_sum, words};
use super::fuse_updates::is_small;
use super::lookup_grads::Lookups;
use crate::compile::{Parallel, Shard};
use crate::dtype::DType;
use crate::graph::{Class, ExchangeKind, Graph, Node, Op, Param, Sharded, Share, Value, ValueId};
use crate::shape::Shape;

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
        for ranks in exchanges.runs(bucket.rounds) {
            bucket.sum = receive_sum(graph, (exchange, ranks), &like, exchanges.together, bucket.sum);
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
