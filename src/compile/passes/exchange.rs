//! Exchanges between ranks, as operations of the graph. The same operations in the same order on all ranks.

use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::sync::Arc;

use crate::dtype::DType;
use crate::graph::{Binary, Class, Exchange, ExchangeKind, Graph, Node, Op, Phase, Value, ValueId};
use crate::shape::Shape;

/// Words of a share are a multiple of this, so that sums of shares read vec4.
const SHARE_WORDS: u64 = 4;

/// Adds sends and receives to a graph, all in one order.
pub(super) struct Exchanges {
    ranks: u32,
    token: Option<ValueId>,
}

impl Exchanges {
    pub(super) fn new(ranks: u32) -> Self {
        Self { ranks, token: None }
    }

    /// Sends values, one after another.
    fn send(&mut self, graph: &mut Graph, kind: ExchangeKind, share: u64, values: &[ValueId]) -> u32 {
        let same = graph.exchanges.iter().filter(|exchange| exchange.kind == kind).count();
        let index = graph.exchanges.len() as u32;
        graph.exchanges.push(Exchange { kind, ranks: self.ranks, share, buffer: same as u32 % IN_FLIGHT });
        let mut start = 0;
        for &value in values {
            let token = self.new_token(graph);
            let inputs = [value].into_iter().chain(self.token).collect();
            self.push(graph, Op::Send { exchange: index, start }, inputs, vec![token]);
            start += words(graph, value);
        }
        index
    }

    /// Receives a value like `like`, of another shape.
    fn receive(&mut self, graph: &mut Graph, at: (u32, u64), like: ValueId, shape: Shape) -> ValueId {
        let value = Value { shape, ..graph.value(like).clone() };
        let (dtype, token) = (value.dtype, self.new_token(graph));
        let received = graph.add_value(value);
        graph.values[received.index()].name += &format!(".received{}", received.index());
        let op = Op::Receive { exchange: at.0, start: at.1, shape, dtype };
        self.push(graph, op, self.token.into_iter().collect(), vec![received, token]);
        received
    }

    /// Each list has the values of this rank's parts; afterwards, those of all parts in their order.
    pub(super) fn gather_parts(&mut self, graph: &mut Graph, lists: Vec<&mut Vec<ValueId>>) {
        let own: Vec<ValueId> = lists.iter().flat_map(|list| list.iter().copied()).collect();
        if self.ranks == 1 || own.is_empty() {
            return;
        }
        let share = own.iter().map(|id| words(graph, *id)).sum();
        let exchange = self.send(graph, ExchangeKind::Gather, share, &own);
        let mut all = vec![Vec::with_capacity(own.len()); self.ranks as usize];
        let mut start = 0;
        for received in &mut all {
            for &id in &own {
                let shape = graph.value(id).shape;
                received.push(self.receive(graph, (exchange, start), id, shape));
                start += words(graph, id);
            }
        }
        let mut first = 0;
        for list in lists {
            let range = first..first + list.len();
            first = range.end;
            *list = range.flat_map(|i| all.iter().map(move |received| received[i])).collect();
        }
    }

    fn new_token(&self, graph: &mut Graph) -> ValueId {
        let name = format!("token{}", graph.values.len());
        graph.add_value(Value::new(name, Shape::from([]), DType::F32, Class::Workspace))
    }

    fn push(&mut self, graph: &mut Graph, op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>) {
        self.token = outputs.last().copied();
        graph.nodes.push(node(op, inputs, outputs));
    }
}

fn node(op: Op, inputs: Vec<ValueId>, outputs: Vec<ValueId>) -> Node {
    let (layer, phase, at) = (Arc::from(""), Phase::Backward, Location::caller());
    Node { op, inputs, outputs, layer, phase, at }
}

/// Exchanges of each kind between whose sends and receives others run.
const IN_FLIGHT: u32 = 2;

/// Sums of gradients over the parts of all ranks. Each rank adds up its share of a bucket of gradients, in the order of
/// the parts, and sends the sum to the others.
pub(super) struct Sums {
    buckets: Vec<Bucket>,
    /// Parts of a batch on each rank.
    rounds: u32,
    scattered: VecDeque<(u32, usize)>,
    gathered: VecDeque<(u32, usize)>,
    /// The sum of each gradient.
    sums: BTreeMap<ValueId, ValueId>,
}

/// Gradients that are exchanged together.
struct Bucket {
    gradients: Vec<ValueId>,
    /// Words of each rank's share.
    share: u64,
    /// Position of the node after which all are there.
    after: usize,
    /// This rank's share of the sum so far.
    sum: Option<ValueId>,
    /// Number of parts of each rank in the sum.
    rounds: u32,
}

impl Sums {
    /// Buckets of at least `bytes`, except for the last, in the order in which `nodes` compute the gradients; none with
    /// one rank.
    pub(super) fn new(
        graph: &Graph,
        nodes: &[Node],
        gradients: &[(ValueId, ValueId)],
        (bytes, ranks, rounds): (u64, u32, u32),
    ) -> Self {
        let mut made = vec![0; graph.values.len()];
        for (n, node) in nodes.iter().enumerate() {
            node.outputs.iter().for_each(|id| made[id.index()] = n);
        }
        let gradients = gradients.iter().map(|(_, gradient)| *gradient).filter(|_| ranks > 1);
        let mut gradients: Vec<ValueId> = gradients.collect();
        gradients.sort_by_key(|id| (made[id.index()], *id));
        gradients.dedup();
        let (mut buckets, mut open, mut filled) = (Vec::new(), Vec::new(), 0);
        let mut close = |gradients: Vec<ValueId>| {
            let Some(last) = gradients.last() else { return };
            let (after, all) =
                (made[last.index()], gradients.iter().map(|id| words(graph, *id)).sum::<u64>());
            let share = all.div_ceil(u64::from(ranks)).next_multiple_of(SHARE_WORDS);
            buckets.push(Bucket { gradients, share, after, sum: None, rounds: 0 });
        };
        for id in gradients {
            open.push(id);
            filled += graph.value(id).bytes();
            if filled >= bytes {
                close(std::mem::take(&mut open));
                filled = 0;
            }
        }
        close(open);
        let (scattered, gathered, sums) = Default::default();
        Self { buckets, rounds, scattered, gathered, sums }
    }

    /// Sends the buckets that are complete after node `n` of a part, in which `at` names the values.
    pub(super) fn computed(
        &mut self,
        n: usize,
        graph: &mut Graph,
        exchanges: &mut Exchanges,
        at: impl Fn(&ValueId) -> ValueId,
    ) {
        for i in 0..self.buckets.len() {
            let bucket = &self.buckets[i];
            if bucket.after == n {
                let values: Vec<ValueId> = bucket.gradients.iter().map(&at).collect();
                let exchange = exchanges.send(graph, ExchangeKind::Scatter, bucket.share, &values);
                self.scattered.push_back((exchange, i));
                self.settle(graph, exchanges, IN_FLIGHT as usize - 1);
            }
        }
    }

    /// Receives what is left; returns the sum of the gradient of each parameter.
    pub(super) fn finish(
        mut self,
        graph: &mut Graph,
        exchanges: &mut Exchanges,
        gradients: &[(ValueId, ValueId)],
    ) -> BTreeMap<ValueId, ValueId> {
        self.settle(graph, exchanges, 0);
        let sum = |(parameter, gradient): &(ValueId, ValueId)| Some((*parameter, *self.sums.get(gradient)?));
        gradients.iter().filter_map(sum).collect()
    }

    /// Receives until at most `most` exchanges of each kind are left.
    fn settle(&mut self, graph: &mut Graph, exchanges: &mut Exchanges, most: usize) {
        while self.scattered.len() > most {
            let Some((exchange, i)) = self.scattered.pop_front() else { break };
            let bucket = &mut self.buckets[i];
            let (shape, like) = (Shape::from([bucket.share as usize]), bucket.gradients[0]);
            for rank in 0..u64::from(exchanges.ranks) {
                let part = exchanges.receive(graph, (exchange, rank * bucket.share), like, shape);
                let Some(sum) = bucket.sum.replace(part) else { continue };
                let name = format!("sum{}", graph.values.len());
                let added = graph.derive(part, &name, |_| ());
                graph.nodes.push(node(Op::Binary(Binary::Add), vec![sum, part], vec![added]));
                bucket.sum = Some(added);
            }
            bucket.rounds += 1;
            if let Some(sum) = bucket.sum.filter(|_| bucket.rounds == self.rounds) {
                let exchange = exchanges.send(graph, ExchangeKind::Gather, bucket.share, &[sum]);
                self.gathered.push_back((exchange, i));
            }
            self.receive_sums(graph, exchanges, most);
        }
        if self.scattered.is_empty() {
            self.receive_sums(graph, exchanges, most);
        }
    }

    fn receive_sums(&mut self, graph: &mut Graph, exchanges: &mut Exchanges, most: usize) {
        while self.gathered.len() > most {
            let Some((exchange, i)) = self.gathered.pop_front() else { break };
            let mut start = 0;
            for &id in &self.buckets[i].gradients {
                let sum = exchanges.receive(graph, (exchange, start), id, graph.value(id).shape);
                self.sums.insert(id, sum);
                start += words(graph, id);
            }
        }
    }
}

fn words(graph: &Graph, id: ValueId) -> u64 {
    graph.value(id).bytes() / 4
}
