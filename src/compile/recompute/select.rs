//! What is dropped by rule: every so many layers, in named layers, or by kind of operation.

use std::collections::BTreeSet;

use super::chain::{Chain, Stage};
use super::cost_model::CostModel;
use super::script::{Retention, Writer};
use crate::error::{Error, Result};
use crate::graph::{Graph, Op};

/// Slots below this share of the largest stay: what they save is not worth a look. Statistics of a batch norm are among
/// them, so they are never counted twice.
const SMALL: u64 = 2_000;

/// Slots that may be dropped, in the order of the forward pass.
pub(super) fn candidates(model: &CostModel) -> Vec<usize> {
    let droppable: Vec<usize> = (0..model.slots.len()).filter(|&slot| model.can_drop(slot)).collect();
    let largest = droppable.iter().map(|&slot| model.slots[slot].bytes).max().unwrap_or(0);
    let large = |slot: &usize| model.slots[*slot].bytes.saturating_mul(SMALL) >= largest;
    droppable.into_iter().filter(large).collect()
}

/// An operation that multiplies matrices: the unit that layers are counted in, and what a policy keeps.
fn is_product(op: &Op) -> bool {
    matches!(op, Op::MatMul { .. } | Op::Conv2d { .. } | Op::Conv2dInput { .. } | Op::Attention(_))
}

/// Results of matrix products and convolutions stay, everything else is made again.
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

/// What is made and used inside of the named layers is made again; what they hand on stays.
///
/// # Errors
/// [`Error::Unknown`] for a layer that is not there.
pub(super) fn named(model: &CostModel, graph: &Graph, layers: &[&str]) -> Result<Vec<Retention>> {
    let forward = Forward::of(model);
    let mut inside = vec![false; forward.order.len()];
    for name in layers {
        let belongs = |&n: &u32| {
            let rest = graph.nodes[n as usize].layer.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        // Functions between a layer's parts, which have no path of their own, lie inside as well.
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

/// Segments of `length` layers; what one hands to the next stays, and everything in the last, which is needed at once.
pub(super) fn every(model: &CostModel, graph: &Graph, length: Length) -> Vec<Retention> {
    let forward = Forward::of(model);
    let candidates = candidates(model);
    let layers = forward.layers(graph, &candidates);
    let length = match length {
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

/// A network as a chain of layers that each hand a single tensor to the next.
pub(super) struct Layers {
    pub(super) stages: Vec<Stage>,
    /// The slot that each starts from; the first starts from the step's inputs.
    starts: Vec<Option<usize>>,
    /// Slots that are made before the last layer and are not handed on.
    inner: Vec<usize>,
    /// The most bytes of results within one layer.
    pub(super) widest: u64,
}

impl Layers {
    /// `None` where layers hand on more than one tensor, or there are too few to choose from.
    pub(super) fn of(model: &CostModel, graph: &Graph) -> Option<Self> {
        let forward = Forward::of(model);
        let candidates = candidates(model);
        let cuts = forward.layers(graph, &candidates);
        let end = |i: usize| cuts.get(i + 1).copied().unwrap_or(forward.order.len());
        let mut layers = Self { stages: Vec::new(), starts: Vec::new(), inner: Vec::new(), widest: 0 };
        for (i, &cut) in cuts.iter().enumerate() {
            let works = forward.order[cut..end(i)].iter().map(|&n| model.works[n as usize].seconds);
            let crosses = |slot: &&usize| {
                let until = forward.readers[**slot].iter().copied().max();
                forward.made[**slot].is_some_and(|made| made < cut) && until.is_some_and(|until| until >= cut)
            };
            let handed: Vec<usize> = candidates.iter().filter(crosses).copied().collect();
            if handed.len() > 1 || (handed.is_empty() && i > 0) {
                return None;
            }
            let start = handed.first().copied();
            let bytes = start.map_or(0, |slot| model.slots[slot].bytes);
            layers.stages.push(Stage { seconds: works.sum(), bytes });
            layers.starts.push(start);
        }
        let last = *cuts.last()?;
        for slot in candidates {
            let inner =
                forward.made[slot].is_some_and(|made| made < last) && !layers.starts.contains(&Some(slot));
            layers.inner.extend(inner.then_some(slot));
        }
        let mut widths = vec![0; cuts.len()];
        for &slot in &layers.inner {
            let stage = cuts.partition_point(|&cut| forward.made[slot].is_some_and(|made| cut <= made));
            widths[stage.saturating_sub(1)] += model.slots[slot].bytes;
        }
        layers.widest = widths.into_iter().max().unwrap_or(0);
        (4..=MOST_LAYERS).contains(&layers.stages.len()).then_some(layers)
    }

    /// What becomes of each slot if layers start from what `chain` says; what lies within a layer is made again.
    pub(super) fn retention(&self, chain: &Chain, start: &[Retention]) -> Vec<Retention> {
        let mut retention = start.to_vec();
        self.inner.iter().for_each(|&slot| retention[slot] = Retention::RecomputeOnce);
        for (slot, choice) in self.starts.iter().zip(chain.retention()) {
            if let Some(slot) = slot {
                retention[*slot] = choice;
            }
        }
        retention
    }
}

/// Longer chains are left to the greedy search.
const MOST_LAYERS: usize = 96;

/// How long segments are.
#[derive(Clone, Copy)]
pub(super) enum Length {
    Layers(u32),
    /// The square root of the number of layers (Chen et al. 2016).
    Root,
}

/// The forward pass by position in its order.
struct Forward {
    order: Vec<u32>,
    /// Where each slot is made.
    made: Vec<Option<usize>>,
    /// Where each slot is read.
    readers: Vec<Vec<usize>>,
}

impl Forward {
    fn of(model: &CostModel) -> Self {
        let order: Vec<u32> =
            model.order.iter().copied().filter(|&n| model.works[n as usize].forward).collect();
        let mut made = vec![None; model.slots.len()];
        let mut readers = vec![Vec::new(); model.slots.len()];
        for (at, &n) in order.iter().enumerate() {
            let work = &model.works[n as usize];
            model.writes(work).iter().for_each(|&slot| made[slot as usize] = Some(at));
            model.reads(work).iter().for_each(|&slot| readers[slot as usize].push(at));
        }
        Self { order, made, readers }
    }

    /// Where each layer begins: where a single tensor is handed on, with a product in between; in networks that have no
    /// such places, before each product.
    fn layers(&self, graph: &Graph, candidates: &[usize]) -> Vec<usize> {
        let product = |at: usize| is_product(&graph.nodes[self.order[at] as usize].op);
        let mut crossing = vec![0i64; self.order.len() + 1];
        for &slot in candidates {
            let (Some(made), Some(&last)) = (self.made[slot], self.readers[slot].iter().max()) else {
                continue;
            };
            crossing[made + 1] += 1;
            crossing[last + 1] -= 1;
        }
        let mut alive = 0;
        let mut blocks = vec![0];
        let mut products = 0;
        for (at, change) in crossing.iter().enumerate().take(self.order.len()) {
            alive += change;
            if at > 0 && alive == 1 && products > 0 && product(at) {
                blocks.push(at);
                products = 0;
            }
            products += usize::from(product(at));
        }
        let all: Vec<usize> = (0..self.order.len()).filter(|&at| product(at)).collect();
        // A few places in a deep network are none to cut it at.
        if blocks.len() * 8 >= all.len() { blocks } else { all }
    }
}

/// What cannot be made again when it is needed stays.
fn settle(model: &CostModel, mut retention: Vec<Retention>) -> Vec<Retention> {
    let mut writer = Writer::new(model);
    while let Err(slot) = writer.write(&retention).map(|_| ()) {
        retention[slot] = Retention::Save;
    }
    retention
}
