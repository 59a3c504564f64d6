//! Which operations of the order use each slot, and between which of them it is alive. A block is an operation with what is recomputed
//! for it.

use super::cost_model::{CostModel, Slot};
use crate::compile::passes::ScheduleEntry;

/// The block reads the slot.
const READS: u8 = 1;
/// The block writes the slot, before it reads it.
const CREATES: u8 = 2;
/// What is recomputed for the block depends on whether the slot is in memory.
const LOOKS: u8 = 4;

/// How a block uses a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub block: u32,
    /// Bits; none if it does not.
    pub how: u8,
}

impl Use {
    /// Whether the slot is in memory at some time in the block.
    pub(super) fn holds(self) -> bool {
        self.how & (READS | CREATES) != 0
    }

    pub(super) fn creates(self) -> bool {
        self.how & CREATES != 0
    }

    fn looks(self) -> bool {
        self.how & LOOKS != 0
    }
}

/// The slot that a step copies back from host memory, if that is what it does.
pub(super) fn brought(model: &CostModel, step: &ScheduleEntry) -> Option<u32> {
    let writes = || model.writes(&model.works[step.node as usize]);
    step.brings_back().then(|| writes()[step.away.trailing_zeros() as usize])
}

/// The slots that later steps read from this one, not from an earlier one.
pub(super) fn fresh<'m>(model: &'m CostModel, step: &ScheduleEntry) -> impl Iterator<Item = u32> + 'm {
    let (writes, fresh) = (model.writes(&model.works[step.node as usize]), step.fresh);
    writes.iter().enumerate().filter(move |(i, _)| fresh >> i & 1 == 1).map(|(_, &slot)| slot)
}

/// Whether steps after a block read the contents that the slot has at its end.
pub(super) fn is_read_after(slot: &Slot, uses: &[Use], block: usize) -> bool {
    let after = &uses[uses.partition_point(|other| other.block as usize <= block)..];
    after.iter().find(|other| other.holds()).map_or(slot.stays, |other| !other.creates())
}

/// The first block after `block` (or of all) that looks at whether the slot is in memory.
pub(super) fn next_look(uses: &[Use], block: Option<usize>) -> Option<usize> {
    let after = block.map_or(0, |block| uses.partition_point(|other| other.block as usize <= block));
    uses[after..].iter().find(|other| other.looks()).map(|other| other.block as usize)
}

/// Calls `each` with the first and last block before which the slot is alive, for each time that it is; `end` is after all blocks.
pub(super) fn alive_before(slot: &Slot, uses: &[Use], end: usize, mut each: impl FnMut(usize, usize)) {
    let mut from = slot.input.then_some(0);
    let mut until = 0;
    let mut close = |from: Option<usize>, until: usize| {
        if let Some(from) = from.filter(|&from| from <= until) {
            each(from, until);
        }
    };
    for other in uses.iter().filter(|other| other.holds()) {
        if other.creates() {
            close(from, until);
            from = Some(other.block as usize + 1);
        }
        until = other.block as usize;
    }
    close(from, if slot.stays { end } else { until });
}

/// Finds the slots that a block uses, and compares two versions of one. Its buffers are reused between blocks.
pub(super) struct Finder {
    /// By slot: how it is used, in two versions.
    how: Vec<[u8; 2]>,
    met: Vec<u32>,
}

impl Finder {
    pub(super) fn new(slots: usize) -> Self {
        Self { how: vec![[0; 2]; slots], met: Vec::new() }
    }

    /// Adds what block `at` uses with these steps before its own, as this version.
    pub(super) fn add(&mut self, model: &CostModel, at: usize, steps: &[ScheduleEntry], version: usize) {
        for step in steps {
            if let Some(slot) = brought(model, step) {
                self.mark(slot, version, CREATES | LOOKS);
                continue;
            }
            let work = &model.works[step.node as usize];
            model.held(work).iter().for_each(|&slot| self.mark(slot, version, READS | LOOKS));
            for &slot in model.writes(work) {
                self.mark(slot, version, LOOKS);
                let by = model.slots[slot as usize].producer.map(|n| &model.works[n as usize]);
                let between = by.iter().flat_map(|work| &work.joins);
                between.for_each(|(slot, _)| self.mark(*slot, version, LOOKS));
            }
            fresh(model, step).for_each(|slot| self.mark(slot, version, CREATES));
        }
        let work = &model.works[model.order[at] as usize];
        let looks = if work.forward { 0 } else { LOOKS };
        model.held(work).iter().for_each(|&slot| self.mark(slot, version, READS | looks));
        // Updates write nothing in the step's arenas.
        let writes = if work.written > 0 { model.writes(work) } else { &[] };
        writes.iter().for_each(|&slot| self.mark(slot, version, CREATES));
    }

    fn mark(&mut self, slot: u32, version: usize, how: u8) {
        let known = &mut self.how[slot as usize];
        if *known == [0; 2] {
            self.met.push(slot);
        }
        known[version] |= how;
    }

    /// Calls `each` with each slot that was added and how it is used in both versions, and forgets them.
    pub(super) fn drain(&mut self, mut each: impl FnMut(u32, [u8; 2])) {
        for slot in self.met.drain(..) {
            each(slot, std::mem::take(&mut self.how[slot as usize]));
        }
    }
}
