//! A lower bound on the time of recomputation: how far a choice can be from the best one.
//!
//! Take a moment in the step, just before an operation of the backward pass. Each tensor that this operation or a later one reads
//! is then in memory, or it is recomputed or copied back from host memory after that moment; the same holds for the operands of
//! what is recomputed. The tensors in memory must fit beside the operation's results. Every script meets these conditions, so the
//! fastest solution of them takes at most the time of the fastest script. If each byte in memory has a price `λ` and the limit is
//! dropped (Lagrangian relaxation), the solution of least cost is a minimum cut, and each price gives a lower bound:
//!
//! ```text
//! bound(λ) = min Σ seconds of works computed again and of copies + λ (Σ bytes kept - room)
//! ```
//!
//! It is concave in `λ`; the best price is found where the lines of two cuts meet (Held & Karp 1970; the cut is that of Picard 1976).

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::cost_model::{CostModel, Work};

/// Moments that are tried: those of the backward pass with the most bytes alive if nothing is recomputed; one in steps of more than
/// [`MANY`] operations.
const MOMENTS: usize = 8;
const MANY: usize = 3000;

/// Prices that are tried for a moment.
const PRICES: usize = 40;

/// Relative error of sums of capacities: bounds are lowered by it.
const ERROR: f64 = 1e-9;

/// Returns a lower bound on the seconds of recomputation of every script with at most `target` bytes alive at once; `None` if there
/// is none. It holds for the model's order of operations.
pub(super) fn least_seconds(model: &CostModel, target: u64) -> Option<f64> {
    let places = model.places();
    let moments = if model.order.len() > MANY { 1 } else { MOMENTS };
    let seconds = Seconds::of(model);
    let mut least = 0.0_f64;
    for &at in highest(model).iter().take(moments) {
        least = least.max(Moment::new(model, at, &places, &seconds).least(target)?);
    }
    Some(least * (1.0 - ERROR))
}

/// Positions of the operations of the backward pass, those with the most bytes alive first if nothing is recomputed.
fn highest(model: &CostModel) -> Vec<usize> {
    let alive = model.alive(|_| true);
    let work = |at: usize| &model.works[model.order[at] as usize];
    let mut backward: Vec<usize> = (0..model.order.len()).filter(|&at| !work(at).forward).collect();
    backward.sort_by_key(|&at| (Reverse(alive[at] + model.own_bytes(work(at))), at));
    backward
}

/// The least seconds that the operations add when they are computed again.
struct Seconds {
    /// Of each operation if its result is read: a fused pair may be faster than its second operation.
    read: Vec<f64>,
    /// The same where only operations that are computed again read it: as the first of a fused pair, it adds only what the pair takes
    /// longer than the second.
    fused: Vec<f64>,
}

impl Seconds {
    fn of(model: &CostModel) -> Self {
        let of_pair = |joined: u32| model.works[joined as usize].seconds;
        let least = |work: &Work| {
            work.joins.iter().fold(work.seconds, |least, &(_, joined)| least.min(of_pair(joined)))
        };
        let read: Vec<f64> = model.works.iter().map(least).collect();
        let mut fused = read.clone();
        for (work, then) in model.works.iter().zip(&read) {
            for &(between, joined) in &work.joins {
                let Some(first) = model.slots[between as usize].producer else { continue };
                let rest = (of_pair(joined) - then).max(0.0);
                fused[first as usize] = fused[first as usize].min(rest);
            }
        }
        Self { read, fused }
    }
}

/// A line of the bound: its seconds at price 0, and the bytes that its cut keeps.
#[derive(Clone, Copy)]
struct Line {
    seconds: f64,
    bytes: f64,
}

/// The conditions at a moment.
struct Moment {
    /// Nodes: the source, the sink, then slots, then works.
    network: Network,
    /// Edges whose capacity is the price of a slot's bytes, or the seconds to copy it to host memory and back, if those are fewer.
    priced: Vec<(usize, f64, Option<f64>)>,
    /// Edges whose capacity is the seconds of a work.
    timed: Vec<(usize, f64)>,
    /// Bytes of the operation's own results, which need room beside what is kept.
    own: f64,
}

const SOURCE: usize = 0;
const SINK: usize = 1;

impl Moment {
    /// Just before the operation at position `at` of the order.
    fn new(model: &CostModel, at: usize, places: &[usize], seconds: &Seconds) -> Self {
        // Slots that exist already; weights and state are in memory always, and casts of weights never kept.
        let exists = |slot: usize| {
            let kind = &model.slots[slot];
            !kind.persistent && kind.producer.is_none_or(|n| places[n as usize] < at)
        };
        let slots = model.slots.len();
        let mut network = Network::new(2 + slots + model.works.len());
        let (mut priced, mut timed) = (Vec::new(), Vec::new());
        let mut required = vec![false; slots];
        for &n in &model.order[at..] {
            for &slot in model.reads(&model.works[n as usize]) {
                required[slot as usize] = true;
            }
        }
        // The seconds of operations that may be computed again.
        let mut again = vec![None; model.works.len()];
        let work = &model.works[model.order[at] as usize];
        let reads = model.reads(work);
        for slot in (0..slots).filter(|&slot| exists(slot)) {
            let kind = &model.slots[slot];
            if required[slot] || kind.stays {
                network.add(SOURCE, 2 + slot, f64::INFINITY);
            }
            let producer = kind.producer.map(|n| n as usize);
            // What the operation itself reads is in memory.
            let droppable = model.can_be_missing(slot) && !reads.contains(&(slot as u32));
            match producer.filter(|_| droppable) {
                Some(n) => {
                    let least = if required[slot] { seconds.read[n] } else { seconds.fused[n] };
                    again[n] = Some(again[n].map_or(least, |other: f64| other.min(least)));
                    let edge = network.add(2 + slot, 2 + slots + n, f64::INFINITY);
                    if !kind.passing {
                        priced.push((edge, kind.bytes as f64, kind.away_s));
                    }
                }
                None => priced.push((network.add(2 + slot, SINK, 0.0), kind.bytes as f64, None)),
            }
        }
        for (n, seconds) in again.into_iter().enumerate() {
            let Some(seconds) = seconds else { continue };
            timed.push((network.add(2 + slots + n, SINK, seconds), seconds));
            for &slot in model.reads(&model.works[n]) {
                if exists(slot as usize) {
                    network.add(2 + slots + n, 2 + slot as usize, f64::INFINITY);
                }
            }
        }
        Self { network, priced, timed, own: model.own_bytes(work) as f64 }
    }

    /// The value of the minimum cut at a price per byte, and its line.
    fn cut(&mut self, price: f64) -> (f64, Line) {
        self.timed.iter().for_each(|&(edge, seconds)| self.network.set(edge, seconds));
        let copied = |bytes: f64, seconds: Option<f64>| seconds.filter(|seconds| *seconds < price * bytes);
        for &(edge, bytes, seconds) in &self.priced {
            self.network.set(edge, copied(bytes, seconds).unwrap_or(price * bytes));
        }
        let value = self.network.flow();
        let side = self.network.side();
        let crosses = |edge: usize| self.network.crosses(edge, &side);
        let timed = self.timed.iter().filter(|(edge, _)| crosses(*edge)).map(|(_, seconds)| seconds);
        let mut line = Line { seconds: timed.sum(), bytes: 0.0 };
        for &(_, bytes, seconds) in self.priced.iter().filter(|(edge, ..)| crosses(*edge)) {
            match copied(bytes, seconds) {
                Some(seconds) => line.seconds += seconds,
                None => line.bytes += bytes,
            }
        }
        (value, line)
    }

    /// The largest bound of any price; `None` if not even what cannot be dropped fits.
    fn least(mut self, target: u64) -> Option<f64> {
        let room = target as f64 - self.own;
        // Bytes cost nothing, and a byte costs more than all recomputation and all copies.
        let all: f64 = self.timed.iter().map(|(_, seconds)| seconds).sum();
        let copies: f64 = self.priced.iter().filter_map(|(.., seconds)| *seconds).sum();
        let (mut low, mut high) = (self.cut(0.0).1, self.cut(1.0 + 2.0 * (all + copies)).1);
        if high.bytes > room {
            return None;
        }
        let mut best = low.seconds;
        for _ in 0..PRICES {
            if low.bytes <= room || low.bytes <= high.bytes {
                break;
            }
            let price = (high.seconds - low.seconds) / (low.bytes - high.bytes);
            let (value, line) = self.cut(price);
            best = best.max(value - price * room);
            let meets = low.seconds + price * low.bytes;
            if value >= meets * (1.0 - ERROR) {
                break;
            }
            if line.bytes > room { low = line } else { high = line }
        }
        Some(best)
    }
}

/// A network of flow.
struct Network {
    /// Where each edge ends, and the capacity that the flow leaves. Edges come in pairs: one, and its reverse.
    edges: Vec<(usize, f64)>,
    /// Edges of each node.
    from: Vec<Vec<usize>>,
    capacities: Vec<f64>,
    level: Vec<u32>,
    next: Vec<usize>,
}

impl Network {
    fn new(nodes: usize) -> Self {
        Self {
            edges: Vec::new(),
            from: vec![Vec::new(); nodes],
            capacities: Vec::new(),
            level: vec![0; nodes],
            next: vec![0; nodes],
        }
    }

    /// Adds an edge and returns its number.
    fn add(&mut self, from: usize, to: usize, capacity: f64) -> usize {
        let edge = self.edges.len();
        for (node, other, capacity) in [(from, to, capacity), (to, from, 0.0)] {
            self.from[node].push(self.edges.len());
            self.edges.push((other, capacity));
            self.capacities.push(capacity);
        }
        edge
    }

    /// Sets the capacity of an edge for the next flow.
    fn set(&mut self, edge: usize, capacity: f64) {
        self.capacities[edge] = capacity;
    }

    /// The largest flow (Dinic 1970), from none on. What rounding leaves of a capacity is nothing.
    fn flow(&mut self) -> f64 {
        self.edges.iter_mut().zip(&self.capacities).for_each(|(edge, capacity)| edge.1 = *capacity);
        let finite = self.capacities.iter().filter(|capacity| capacity.is_finite());
        let least = 1e-13 * finite.fold(0.0, |most: f64, capacity| most.max(*capacity));
        let mut total = 0.0;
        while self.levels(least) {
            self.next.fill(0);
            loop {
                let pushed = self.push(least);
                if pushed <= 0.0 {
                    break;
                }
                total += pushed;
            }
        }
        total
    }

    /// Distances from the source over edges that have capacity left; whether the sink is reached.
    fn levels(&mut self, least: f64) -> bool {
        self.level.fill(u32::MAX);
        self.level[SOURCE] = 0;
        let mut queue = VecDeque::from([SOURCE]);
        while let Some(node) = queue.pop_front() {
            for &edge in &self.from[node] {
                let (to, left) = self.edges[edge];
                if left > least && self.level[to] == u32::MAX {
                    self.level[to] = self.level[node] + 1;
                    queue.push_back(to);
                }
            }
        }
        self.level[SINK] != u32::MAX
    }

    /// Augments the flow along one path and returns the increase; 0 if no path is left.
    fn push(&mut self, least: f64) -> f64 {
        let mut path: Vec<usize> = Vec::new();
        let mut node = SOURCE;
        while node != SINK {
            let edges = &self.from[node];
            let forward = |edge: usize| {
                let (to, left) = self.edges[edge];
                left > least && self.level[to] == self.level[node] + 1
            };
            match (self.next[node]..edges.len()).find(|&i| forward(edges[i])) {
                Some(i) => {
                    self.next[node] = i;
                    path.push(edges[i]);
                    node = self.edges[edges[i]].0;
                }
                None => {
                    // A dead end.
                    self.next[node] = edges.len();
                    let Some(edge) = path.pop() else { return 0.0 };
                    node = self.edges[edge ^ 1].0;
                    self.next[node] += 1;
                }
            }
        }
        let most = path.iter().map(|&edge| self.edges[edge].1).fold(f64::INFINITY, f64::min);
        for edge in path {
            self.edges[edge].1 -= most;
            self.edges[edge ^ 1].1 += most;
        }
        most
    }

    /// The nodes on the source's side of the minimum cut.
    fn side(&self) -> Vec<bool> {
        self.level.iter().map(|level| *level != u32::MAX).collect()
    }

    fn crosses(&self, edge: usize, side: &[bool]) -> bool {
        side[self.edges[edge ^ 1].0] && !side[self.edges[edge].0]
    }
}
