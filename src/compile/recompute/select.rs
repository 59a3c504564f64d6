//! Recomputation by rule: segments of layers, named layers, or kinds of operations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::chain::{Chain, Stage};
use super::cost_model::CostModel;
use super::script::{Retention, Writer};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, Op, Value};

/// Slots smaller than the largest slot divided by this are kept: dropping them saves too little. They include
/// the statistics of a batch norm, so that these are never counted twice.
const SMALL: u64 = 2_000;

/// Slots that may be dropped, in the order of the forward pass.
pub(super) fn candidates(model: &CostModel) -> Vec<usize> {
    let droppable: Vec<usize> = (0..model.slots.len()).filter(|&slot| model.can_drop(slot)).collect();
    let largest = droppable.iter().map(|&slot| model.slots[slot].bytes).max().unwrap_or(0);
    let large = |slot: &usize| model.slots[*slot].bytes.saturating_mul(SMALL) >= largest;
    droppable.into_iter().filter(large).collect()
}

/// An operation that multiplies matrices: the unit for counting layers, and what the policy keeps.
fn is_product(op: &Op) -> bool {
    matches!(op, Op::MatMul { .. } | Op::Conv2d { .. } | Op::Conv2dInput { .. } | Op::Attention(_))
}

/// Whether layers may pass a result on: positions of tokens, which many layers read, are not what they compute.
fn is_stream(graph: &Graph, slot: usize) -> bool {
    graph.values[slot].dtype != DType::U32
}

/// Keeps results of matrix products and convolutions; everything else is recomputed.
pub(super) fn policy(model: &CostModel, graph: &Graph) -> Vec<Retention> {
    let mut retention = vec![Retention::Save; model.slots.len()];
    for slot in candidates(model) {
        let made_by = model.slots[slot].producer.map(|n| &graph.nodes[n as usize].op);
        if made_by.is_some_and(|op| !is_product(op)) {
            retention[slot] = Retention::RecomputeOnce;
        }
    }
    settle(model, retention)
}

/// Recomputes results that are computed and used only inside the named layers. The outputs of these layers
/// are kept.
///
/// # Errors
/// [`Error::Unknown`] for a layer that does not exist.
pub(super) fn named(model: &CostModel, graph: &Graph, layers: &[&str]) -> Result<Vec<Retention>> {
    let forward = Forward::of(model, graph);
    let mut inside = vec![false; forward.order.len()];
    for name in layers {
        let belongs = |&n: &u32| {
            let rest = graph.nodes[n as usize].layer.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        // Functions between a layer's parts have no path of their own, but count as inside.
        let first = forward.order.iter().position(belongs);
        let last = forward.order.iter().rposition(belongs);
        let (Some(first), Some(last)) = (first, last) else {
            let known: BTreeSet<&str> = graph.nodes.iter().map(|node| &*node.layer).collect();
            let known = known.into_iter().filter(|layer| !layer.is_empty()).map(str::to_owned).collect();
            return Err(Error::Unknown { kind: "layer", name: (*name).to_owned(), known });
        };
        inside[first..=last].fill(true);
    }
    let mut retention = vec![Retention::Save; model.slots.len()];
    for slot in candidates(model) {
        let Some(made) = forward.made[slot] else { continue };
        if inside[made] && forward.readers[slot].iter().all(|&at| inside[at]) {
            retention[slot] = Retention::RecomputeOnce;
        }
    }
    Ok(settle(model, retention))
}

/// Segments of `length` layers. Kept are the values passed between segments, and all results of the last
/// segment, which the backward pass needs first.
pub(super) fn every(model: &CostModel, graph: &Graph, length: Length) -> Vec<Retention> {
    let forward = Forward::of(model, graph);
    let candidates = candidates(model);
    let mut layers = forward.layers(model, graph, &candidates);
    let length = match length {
        Length::Blocks(n) => {
            layers = forward.blocks(graph, layers);
            n.max(1) as usize
        }
        Length::Layers(n) => n.max(1) as usize,
        Length::Root => (layers.len() as f64).sqrt().ceil().max(1.0) as usize,
    };
    let cuts: Vec<usize> = layers.chunks(length).map(|segment| segment[0]).collect();
    let last = cuts.last().copied().unwrap_or(0);
    let mut retention = vec![Retention::Save; model.slots.len()];
    for slot in candidates {
        let Some(made) = forward.made[slot].filter(|&made| made < last) else { continue };
        let until = forward.readers[slot].iter().copied().max().unwrap_or(made);
        if !cuts.iter().any(|&cut| made < cut && cut <= until) {
            retention[slot] = Retention::RecomputeOnce;
        }
    }
    settle(model, retention)
}

/// A network as a chain of layers. Each layer passes a single tensor to the next, whole or in parts.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) stages: Vec<Stage>,
    /// The input slots of each layer, the parts of a tensor; the first layer starts from the step's inputs.
    starts: Vec<Vec<usize>>,
    /// Slots computed before the last layer that are not passed between layers.
    inner: Vec<usize>,
    /// The best checkpoints within `1 << i` bytes.
    chains: Vec<OnceLock<Chain>>,
}

impl Layers {
    /// `None` if a layer passes on more than one tensor, or if there are too few or too many layers.
    pub(super) fn of(model: &CostModel, graph: &Graph) -> Option<Self> {
        let forward = Forward::of(model, graph);
        let candidates = candidates(model);
        let cuts = forward.layers(model, graph, &candidates);
        // Where the last layer begins.
        let mut last = None;
        let end = |i: usize| cuts.get(i + 1).copied().unwrap_or(forward.order.len());
        let chains = (0..u64::BITS).map(|_| OnceLock::new()).collect();
        let mut layers = Self { stages: Vec::new(), starts: Vec::new(), inner: Vec::new(), chains };
        for (i, &cut) in cuts.iter().enumerate() {
            let works = forward.order[cut..end(i)].iter().map(|&n| model.works[n as usize].seconds);
            let crosses = |slot: &&usize| {
                let until = forward.readers[**slot].iter().copied().max();
                forward.made[**slot].is_some_and(|made| made < cut) && until.is_some_and(|until| until >= cut)
            };
            let streams = candidates.iter().filter(|&&slot| is_stream(graph, slot));
            let handed: Vec<usize> = streams.filter(crosses).copied().collect();
            let tensors: BTreeSet<usize> = handed.iter().map(|slot| forward.whole[*slot]).collect();
            if tensors.len() > 1 || (handed.is_empty() && i > 0) {
                return None;
            }
            let seconds = works.sum();
            // Parts that begin with the same tensor, such as the chunks of a loss, are one layer.
            if let (true, Some(stage)) =
                (i > 0 && layers.starts.last() == Some(&handed), layers.stages.last_mut())
            {
                stage.seconds += seconds;
                continue;
            }
            let bytes = handed.iter().map(|slot| model.slots[*slot].bytes).sum();
            layers.stages.push(Stage { seconds, bytes });
            layers.starts.push(handed);
            last = Some(cut);
        }
        let last = last?;
        let passed_on: BTreeSet<usize> = layers.starts.iter().flatten().copied().collect();
        for slot in candidates {
            let inner = forward.made[slot].is_some_and(|made| made < last) && !passed_on.contains(&slot);
            layers.inner.extend(inner.then_some(slot));
        }
        (4..=MOST_LAYERS).contains(&layers.stages.len()).then_some(layers)
    }

    /// The retention of each slot with the best checkpoints within `room` bytes; results within a layer are recomputed.
    pub(super) fn checkpoints(&self, room: u64, start: &[Retention]) -> Vec<Retention> {
        // One table serves all between a power of two and the next.
        let size = room.max(1).checked_next_power_of_two().unwrap_or(1 << 63);
        let chain =
            self.chains[size.trailing_zeros() as usize].get_or_init(|| Chain::new(&self.stages, size));
        self.retention(chain.retention(room), start)
    }

    /// The retention of each slot if all layer inputs are kept, and results within a layer are recomputed; and the bytes of these
    /// inputs.
    pub(super) fn all_kept(&self, start: &[Retention]) -> (Vec<Retention>, u64) {
        let bytes = self.stages.iter().map(|stage| stage.bytes).sum();
        (self.retention(vec![Retention::Save; self.stages.len()], start), bytes)
    }

    fn retention(&self, inputs: Vec<Retention>, start: &[Retention]) -> Vec<Retention> {
        let mut retention = start.to_vec();
        self.inner.iter().for_each(|&slot| retention[slot] = Retention::RecomputeOnce);
        for (slots, choice) in self.starts.iter().zip(inputs) {
            slots.iter().for_each(|&slot| retention[slot] = choice);
        }
        retention
    }
}

/// Longer chains use only the greedy search.
const MOST_LAYERS: usize = 128;

/// Results that are alike, such as the outputs of one layer in all blocks of a transformer: those of the same operation in
/// layers whose paths differ only in numbers, with the same sizes but for their number of rows, in the order of the forward pass.
/// The last chunk of rows often has fewer.
pub(super) fn alike(model: &CostModel, graph: &Graph) -> Vec<Vec<usize>> {
    type Kind<'g> = (String, &'g str, &'g [usize], DType);
    let mut groups: Vec<(Kind, Vec<usize>)> = Vec::new();
    for slot in candidates(model) {
        let Some(node) = model.slots[slot].producer.map(|n| &graph.nodes[n as usize]) else { continue };
        let layer = node.layer.split('.').filter(|part| part.parse::<u32>().is_err()).collect::<Vec<_>>();
        let value = &graph.values[slot];
        let dims = value.shape.dims();
        let row = if dims.len() > 1 { &dims[1..] } else { dims };
        let kind: Kind = (layer.join("."), node.op.name(), row, value.dtype);
        match groups.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, slots)) => slots.push(slot),
            None => groups.push((kind, vec![slot])),
        }
    }
    groups.into_iter().map(|(_, slots)| slots).collect()
}

/// The length of segments.
#[derive(Clone, Copy)]
pub(super) enum Length {
    /// A block of a transformer may have several layers: attention and perceptron.
    Blocks(u32),
    Layers(u32),
    /// The square root of the number of layers (Chen et al. 2016).
    Root,
}

/// The forward pass, indexed by position in its order.
struct Forward {
    order: Vec<u32>,
    /// The position that computes each slot.
    made: Vec<Option<usize>>,
    /// The positions that read each slot.
    readers: Vec<Vec<usize>>,
    /// The tensor of which each slot is a part of the rows: the first slot of those parts, or the slot itself.
    whole: Vec<usize>,
}

impl Forward {
    fn of(model: &CostModel, graph: &Graph) -> Self {
        let order: Vec<u32> =
            model.order.iter().copied().filter(|&n| model.works[n as usize].forward).collect();
        let mut made = vec![None; model.slots.len()];
        let mut readers = vec![Vec::new(); model.slots.len()];
        for (at, &n) in order.iter().enumerate() {
            let work = &model.works[n as usize];
            model.writes(work).iter().for_each(|&slot| made[slot as usize] = Some(at));
            model.reads(work).iter().for_each(|&slot| readers[slot as usize].push(at));
        }
        let mut first = BTreeMap::new();
        let whole = |(slot, value): (usize, &Value)| match value.tensor_in_parts() {
            None => slot,
            Some(tensor) => *first.entry(tensor).or_insert(slot),
        };
        let whole = graph.values.iter().enumerate().map(whole).collect();
        Self { order, made, readers, whole }
    }

    /// The first position of each block: of the layers whose products' paths begin with the same number, as those of a block in
    /// a list of blocks do.
    fn blocks(&self, graph: &Graph, mut layers: Vec<usize>) -> Vec<usize> {
        let block = |at: &mut usize| {
            let node = |at: &u32| &graph.nodes[*at as usize];
            let path = &*self.order[*at..].iter().map(node).find(|node| is_product(&node.op))?.layer;
            let mut end = 0;
            let numbered = path.split_inclusive('.').any(|part| {
                end += part.len();
                part.trim_end_matches('.').parse::<u32>().is_ok()
            });
            numbered.then(|| &path[..end])
        };
        layers.dedup_by(|later, before| block(later).is_some_and(|later| Some(later) == block(before)));
        layers
    }

    /// The first position of each layer. A layer starts where a single tensor is passed on, with at least one product in
    /// between: at a product, or, where the stream passes by a norm, at any operation but a cast. In networks without such points, each
    /// product starts a layer.
    fn layers(&self, model: &CostModel, graph: &Graph, candidates: &[usize]) -> Vec<usize> {
        let product = |at: usize| is_product(&graph.nodes[self.order[at] as usize].op);
        // From the first part of a tensor on, to the last reader of one.
        let mut spans: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for &slot in candidates.iter().filter(|&&slot| is_stream(graph, slot)) {
            let (Some(made), Some(&last)) = (self.made[slot], self.readers[slot].iter().max()) else {
                continue;
            };
            let span = spans.entry(self.whole[slot]).or_insert((made, last));
            *span = (span.0.min(made), span.1.max(last));
        }
        let mut crossing = vec![0i64; self.order.len() + 1];
        for (made, last) in spans.into_values() {
            crossing[made + 1] += 1;
            crossing[last + 1] -= 1;
        }
        let alive: Vec<i64> = crossing
            .iter()
            .scan(0, |alive, change| {
                *alive += change;
                Some(*alive)
            })
            .collect();
        let starts = |may: &dyn Fn(usize) -> bool| {
            let (mut blocks, mut products) = (vec![0], 0);
            for (at, &alive) in alive.iter().enumerate().take(self.order.len()) {
                if at > 0 && alive == 1 && products > 0 && may(at) {
                    blocks.push(at);
                    products = 0;
                }
                products += usize::from(product(at));
            }
            blocks
        };
        let all: Vec<usize> = (0..self.order.len()).filter(|&at| product(at)).collect();
        // Products of one path, such as those of rows in pieces or of an adapter, are of one layer.
        let path = |at: &usize| &*graph.nodes[self.order[*at] as usize].layer;
        let (paths, rest): (Vec<usize>, Vec<usize>) = all.iter().partition(|at| !path(at).is_empty());
        let deep = paths.iter().map(path).collect::<BTreeSet<_>>().len() + rest.len();
        // With only a few such points in a deep network, segments would be too long.
        let enough = |blocks: &Vec<usize>, most: usize| blocks.len() * most >= deep;
        let at_products = starts(&product);
        if enough(&at_products, 8) {
            return at_products;
        }
        // Not between a result and its copy in fewer bits, or parts and the whole: what is passed on is the copy, or the whole.
        let copies = |at: usize| {
            let work = &model.works[self.order[at] as usize];
            match graph.nodes[self.order[at] as usize].op {
                Op::Cast(_) | Op::Quantise { .. } => true,
                Op::Concat { .. } => {
                    let in_parts = |slot: &u32| graph.values[*slot as usize].tensor_in_parts().is_some();
                    model.reads(work).iter().any(in_parts)
                }
                _ => false,
            }
        };
        let anywhere = starts(&|at| !copies(at));
        if enough(&anywhere, 16) { anywhere } else { all }
    }
}

/// Keeps slots that cannot be recomputed when they are needed, or what is computed from those that ranks exchanged.
fn settle(model: &CostModel, mut retention: Vec<Retention>) -> Vec<Retention> {
    let mut writer = Writer::new(model);
    while let Err(slot) = writer.write(&retention).map(|_| ()) {
        retention[slot] = Retention::Save;
    }
    let exchanged: Vec<usize> = (0..model.slots.len()).filter(|&slot| model.is_exchanged(slot)).collect();
    if exchanged.is_empty() {
        return retention;
    }
    let mut readers: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    for step in writer.write(&retention).unwrap_or_default().iter().filter(|step| step.again) {
        for &slot in model.reads(&model.works[step.node as usize]) {
            readers.entry(slot as usize).or_default().insert(step.node);
        }
    }
    let read_back = model.read_back();
    for slot in exchanged.into_iter().flat_map(|slot| in_place_of(model, slot, &readers, &read_back)) {
        retention[slot] = Retention::Save;
    }
    retention
}

/// The longest chain of operations after an exchange that [`in_place_of`] considers.
const FAR: usize = 4;

/// What to keep in place of a slot that ranks exchanged, which cannot be recomputed: the results that are recomputed from it, if
/// they have fewer bytes, or as many, since they may be offloaded. Empty if there are none. `readers` are the operations that are
/// recomputed and read each slot.
fn in_place_of(
    model: &CostModel,
    exchanged: usize,
    readers: &BTreeMap<usize, BTreeSet<u32>>,
    read_back: &[bool],
) -> Vec<usize> {
    let mut best = (model.slots[exchanged].bytes, Vec::new());
    let mut level = vec![exchanged];
    for _ in 0..FAR {
        if level.iter().any(|&slot| read_back[slot]) {
            break;
        }
        let next = level.iter().filter_map(|slot| readers.get(slot)).flatten();
        let next = next.flat_map(|&n| model.writes(&model.works[n as usize]));
        let next: BTreeSet<usize> = next.map(|&slot| slot as usize).collect();
        if next.is_empty() || !next.iter().all(|&slot| model.can_drop(slot)) {
            break;
        }
        level = next.into_iter().collect();
        let bytes = level.iter().map(|&slot| model.slots[slot].bytes).sum();
        if bytes < best.0 || (bytes == best.0 && best.1.is_empty()) {
            best = (bytes, level.clone());
        }
    }
    best.1
}
