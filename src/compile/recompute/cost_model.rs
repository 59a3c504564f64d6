//! A numeric model of a training step, so that the search can measure thousands of scripts per second.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::compile::analysis::Views;
use crate::error::{Error, Result};
use crate::graph::{Class, Graph, Node, Op, Phase, Value, ValueId};
use crate::kernels;
use crate::limits::{ALIGNMENT, Card, Limits};
use crate::units::align_up;

/// The memory of a value and all its views, indexed by the value's position in the graph.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::compile) struct Slot {
    /// Bytes in the step's arenas; 0 for persistent memory.
    pub bytes: u64,
    /// Allocated from the start of the step.
    pub input: bool,
    /// Keeps its contents across steps.
    pub persistent: bool,
    /// A weight cast to another type for one reader of the forward pass: it is never kept for the backward
    /// pass.
    pub passing: bool,
    /// Read after the step.
    pub stays: bool,
    /// Whether a fused operation can compute it together with its reader.
    pub between: bool,
    /// The operation that computes it.
    pub producer: Option<u32>,
    /// Modelled seconds to copy it to host memory and back, if a search may choose that.
    pub away_s: Option<f64>,
    /// The slot for the first part of a batch, if this is the same result for another part.
    pub first: Option<u32>,
}

/// An operation. Ranges index [`CostModel::list`].
#[derive(Clone, Debug)]
pub(in crate::compile) struct Work {
    /// Slots read, each once, those in the step's arenas before persistent ones.
    reads: Range<u32>,
    /// Number of `reads` in the step's arenas.
    held: u32,
    /// Slots written.
    writes: Range<u32>,
    /// Positions in `reads` of slots in the step's arenas that the first result may overwrite, the preferred one first.
    over: Range<u32>,
    /// Slots changed in place.
    changes: Range<u32>,
    /// Bytes of workspace, of all results, and of operands copied from the host.
    pub room: u64,
    /// Bytes of all results.
    pub written: u64,
    /// Number of dispatches.
    pub launches: u64,
    /// Modelled time, in seconds.
    pub seconds: f64,
    /// Whether it belongs to the forward pass.
    pub forward: bool,
    /// Whether it is part of an exchange between ranks.
    exchanges: bool,
    /// Operands that a fused operation can compute as well: their slots, and the fused operations.
    pub joins: Vec<(u32, u32)>,
}

/// The step: slots by value, operations by node, and the execution order without recomputation.
#[derive(Clone, Debug)]
pub(in crate::compile) struct CostModel {
    pub slots: Vec<Slot>,
    pub works: Vec<Work>,
    /// Operations that are not views, in execution order.
    pub order: Vec<u32>,
    /// The slot of each value.
    pub roots: Vec<usize>,
    list: Vec<u32>,
}

impl CostModel {
    pub(in crate::compile) fn of(
        graph: &Graph,
        order: &[usize],
        limits: &Limits,
        card: &Card,
    ) -> Result<Self> {
        let roots: Vec<usize> = Views::of(graph, false).roots().into_iter().map(ValueId::index).collect();
        let mut slots = Vec::with_capacity(graph.values.len());
        for value in &graph.values {
            let bytes = padded(value.bytes()).ok_or_else(|| {
                Error::TooManyElements(format!("`{}` has more bytes than can be counted", value.name))
            })?;
            let persistent = value.class.is_persistent();
            let bytes = if persistent { 0 } else { bytes };
            slots.push(Slot { bytes, persistent, input: value.class == Class::Input, ..Slot::default() });
        }
        graph.outputs.iter().for_each(|(_, id)| slots[roots[id.index()]].stays = true);
        for (slot, first) in of_first_parts(graph) {
            slots[slot].first = Some(first);
        }
        let works = Vec::with_capacity(graph.nodes.len());
        let order = without_views(graph, order);
        let mut model = Self { slots, works, order, roots, list: Vec::new() };
        for (n, node) in graph.nodes.iter().enumerate() {
            model.add(graph, node, limits, card)?;
            if !graph.is_view(node) {
                node.outputs
                    .iter()
                    .for_each(|id| model.slots[model.roots[id.index()]].producer = Some(n as u32));
            }
        }
        Ok(model)
    }

    /// The same step in another order.
    pub(in crate::compile) fn in_order(&self, graph: &Graph, order: &[usize]) -> Self {
        Self { order: without_views(graph, order), ..self.clone() }
    }

    /// Adds operation `first` and its reader `then` as one fused operation, which may be recomputed in place
    /// of the two.
    pub(in crate::compile) fn join(
        &mut self,
        [first, then]: [usize; 2],
        graph: &Graph,
        both: &Node,
        limits: &Limits,
        card: &Card,
    ) -> Result<()> {
        let between = self.writes(&self.works[first])[0];
        let joined = self.works.len() as u32;
        self.works[then].joins.push((between, joined));
        self.slots[between as usize].between = true;
        self.add(graph, both, limits, card)
    }

    fn add(&mut self, graph: &Graph, node: &Node, limits: &Limits, card: &Card) -> Result<()> {
        let slot = |id: &ValueId| self.roots[id.index()] as u32;
        let operands: Vec<u32> = node.inputs.iter().map(slot).collect();
        let writes: Vec<u32> = node.outputs.iter().map(slot).collect();
        let changes: Vec<u32> = node.op.mutates().iter().map(|&i| operands[i]).collect();
        let persistent = |slot: u32| self.slots[slot as usize].persistent;
        let mut reads = operands.clone();
        reads.sort_unstable_by_key(|&slot| (persistent(slot), slot));
        reads.dedup();
        let held = reads.partition_point(|&slot| !persistent(slot));
        let written = writes.iter().map(|&slot| self.slots[slot as usize].bytes).sum();
        let (mut room, mut launches, mut seconds, mut over) = (0, 0, 0.0, Vec::new());
        let forward = node.phase == Phase::Forward;
        if forward && matches!(node.op, Op::Cast(_)) && self.slots[operands[0] as usize].persistent {
            self.slots[writes[0] as usize].passing = true;
        }
        if !graph.is_view(node) {
            let [inputs, outputs] = graph.types(node);
            if let Some(&(shape, _)) = outputs.first() {
                // No operand may share memory with another, or the result would overwrite both.
                let alone = |i: &usize| operands.iter().filter(|&&slot| slot == operands[*i]).count() == 1;
                let place = |i: usize| reads[..held].binary_search(&operands[i]).ok().map(|at| at as u32);
                let candidates = kernels::in_place_inputs(&node.op, &inputs, shape).into_iter();
                over = candidates.filter(alone).filter_map(place).collect();
            }
            let site =
                kernels::Site { op: &node.op, inputs: &inputs, outputs: &outputs, in_place: None, limits };
            let lowered = kernels::lower(&site)?;
            let scratch = lowered.workspace.iter().map(|&bytes| padded(bytes).unwrap_or(u64::MAX / 4));
            let passing = graph.offloaded_operands(node).map(|i| graph.operand_bytes(node, i));
            let passing = passing.map(|bytes| padded(bytes).unwrap_or(u64::MAX / 4));
            room = scratch.chain(passing).sum::<u64>() + written;
            launches = lowered.launches.len() as u64;
            seconds = kernels::jobs(&site, &lowered).iter().map(|job| card.seconds(job)).sum();
        }
        let mut range = |part: &[u32]| {
            let start = self.list.len() as u32;
            self.list.extend_from_slice(part);
            start..self.list.len() as u32
        };
        self.works.push(Work {
            reads: range(&reads),
            writes: range(&writes),
            over: range(&over),
            changes: range(&changes),
            held: held as u32,
            room,
            written,
            launches,
            seconds,
            forward,
            exchanges: node.op.exchanges(),
            joins: Vec::new(),
        });
        Ok(())
    }

    /// The most bytes that are alive while an operation runs, whatever is recomputed: its operands, results and workspace, and what can
    /// neither be recomputed nor copied back later.
    pub(in crate::compile) fn floor(&self) -> u64 {
        let lasts = |slot: usize| !self.can_be_missing(slot);
        let alive = self.alive(lasts);
        let height = |(&n, alive): (&u32, u64)| {
            let work = &self.works[n as usize];
            let others = self.reads(work).iter().map(|&slot| slot as usize).filter(|&slot| !lasts(slot));
            alive + others.map(|slot| self.slots[slot].bytes).sum::<u64>() + self.own_bytes(work)
        };
        self.order.iter().zip(alive).map(height).max().unwrap_or(0)
    }

    /// Bytes of the slots that `counts` accepts, alive just before each operation of the order if nothing is recomputed.
    pub(in crate::compile) fn alive(&self, counts: impl Fn(usize) -> bool) -> Vec<u64> {
        let (end, places) = (self.order.len(), self.places());
        let mut until: Vec<usize> = self.slots.iter().map(|slot| if slot.stays { end } else { 0 }).collect();
        for (at, &n) in self.order.iter().enumerate() {
            for &slot in self.reads(&self.works[n as usize]) {
                until[slot as usize] = until[slot as usize].max(at + 1);
            }
        }
        let (mut created, mut freed) = (vec![0; end + 1], vec![0; end + 1]);
        for (slot, until) in until.into_iter().enumerate().filter(|&(slot, _)| counts(slot)) {
            let Slot { producer, bytes, .. } = self.slots[slot];
            let from = producer.map_or(0, |n| places[n as usize].saturating_add(1));
            if from < until {
                created[from] += bytes;
                freed[until] += bytes;
            }
        }
        let mut alive = 0;
        let next = |(created, freed): (u64, u64)| {
            alive = alive + created - freed;
            alive
        };
        created.into_iter().zip(freed).take(end).map(next).collect()
    }

    /// The position of each operation in the order; `usize::MAX` if it is not in it.
    pub(in crate::compile) fn places(&self) -> Vec<usize> {
        let mut places = vec![usize::MAX; self.works.len()];
        self.order.iter().enumerate().for_each(|(at, &n)| places[n as usize] = at);
        places
    }

    /// Bytes that an operation needs besides its operands.
    pub(in crate::compile) fn own_bytes(&self, work: &Work) -> u64 {
        let reads = self.reads(work);
        let over = self.over(work).iter().map(|&at| self.slots[reads[at as usize] as usize].bytes).max();
        work.room - over.unwrap_or(0)
    }

    /// Number of dispatches of the step without recomputation.
    pub(in crate::compile) fn launches(&self) -> u64 {
        self.order.iter().map(|&n| self.works[n as usize].launches).sum()
    }

    /// Modelled seconds of the step without recomputation.
    pub(in crate::compile) fn seconds(&self) -> f64 {
        self.order.iter().map(|&n| self.works[n as usize].seconds).sum()
    }

    #[inline]
    fn part(&self, range: &Range<u32>) -> &[u32] {
        &self.list[range.start as usize..range.end as usize]
    }

    /// Slots that an operation reads, each once.
    #[inline]
    pub(in crate::compile) fn reads(&self, work: &Work) -> &[u32] {
        self.part(&work.reads)
    }

    /// Those of [`CostModel::reads`] that are in the step's arenas.
    #[inline]
    pub(in crate::compile) fn held(&self, work: &Work) -> &[u32] {
        &self.reads(work)[..work.held as usize]
    }

    /// Slots that an operation writes.
    #[inline]
    pub(in crate::compile) fn writes(&self, work: &Work) -> &[u32] {
        self.part(&work.writes)
    }

    /// Positions in [`CostModel::held`] of slots that the first result may overwrite, the preferred one
    /// first.
    #[inline]
    pub(in crate::compile) fn over(&self, work: &Work) -> &[u32] {
        self.part(&work.over)
    }

    /// Slots that an operation changes in place.
    #[inline]
    pub(in crate::compile) fn changes(&self, work: &Work) -> &[u32] {
        self.part(&work.changes)
    }

    /// Whether a forward operation of this step computes the slot, so that it can be recomputed.
    pub(in crate::compile) fn can_drop(&self, slot: usize) -> bool {
        let Slot { producer, stays, persistent, passing, .. } = self.slots[slot];
        // What changes state cannot run twice, and ranks exchange words once.
        let again = |n: u32| {
            let work = &self.works[n as usize];
            work.forward && work.changes.is_empty() && !work.exchanges
        };
        !stays && !persistent && !passing && producer.is_some_and(again)
    }

    /// Whether the slot may be out of memory between two operations that read it.
    pub(in crate::compile) fn can_be_missing(&self, slot: usize) -> bool {
        self.can_drop(slot) || self.slots[slot].passing
    }

    /// Whether ranks exchange the slot's words in the forward pass.
    pub(in crate::compile) fn is_exchanged(&self, slot: usize) -> bool {
        let exchanges = |n: u32| self.works[n as usize].forward && self.works[n as usize].exchanges;
        self.slots[slot].producer.is_some_and(exchanges)
    }

    /// Slots that an operation after the forward pass reads.
    pub(in crate::compile) fn read_back(&self) -> Vec<bool> {
        let mut read = vec![false; self.slots.len()];
        for work in self.works.iter().filter(|work| !work.forward) {
            self.reads(work).iter().for_each(|&slot| read[slot as usize] = true);
        }
        read
    }
}

/// The values for other parts of a batch than this rank's first, each with the same value for the first, by their positions. The name of
/// a copy ends in the number of its part.
fn of_first_parts(graph: &Graph) -> Vec<(usize, u32)> {
    if graph.values.iter().all(|value| value.part == 0) {
        return Vec::new();
    }
    let by_name: BTreeMap<&str, usize> =
        graph.values.iter().enumerate().map(|(i, value)| (&*value.name, i)).collect();
    let of_first = |(i, value): (usize, &Value)| {
        let name = value.name.replacen(&format!(".part{}", value.part + 1), "", 1);
        let first = *by_name.get(&*name)?;
        (graph.values[first].part != value.part).then_some((i, first as u32))
    };
    graph.values.iter().enumerate().filter_map(of_first).collect()
}

/// The operations of an order that are not views.
fn without_views(graph: &Graph, order: &[usize]) -> Vec<u32> {
    order.iter().filter(|&&n| !graph.is_view(&graph.nodes[n])).map(|&n| n as u32).collect()
}

fn padded(bytes: u64) -> Option<u64> {
    align_up(bytes.max(1), ALIGNMENT)
}
