//! The bytes alive during each step of a block.

use super::cost_model::CostModel;
use super::uses::brought;
use crate::compile::passes::ScheduleEntry;

/// Measures blocks. Its buffers are reused between them.
pub(super) struct Meter {
    number: u32,
    /// By slot: the number of the last block that read or wrote it, and whether a step after the present one reads its contents.
    read_later: Vec<(u32, bool)>,
    /// For each read of each step, in reverse order, whether it is the last read of the slot's current contents.
    last: Vec<bool>,
    /// Bytes of each step's results that no later step reads, in reverse order.
    unread: Vec<u64>,
}

impl Meter {
    pub(super) fn new(slots: usize) -> Self {
        Self { number: 0, read_later: vec![(0, false); slots], last: Vec::new(), unread: Vec::new() }
    }

    /// Appends the height of each step of a block, which recomputes `steps` and then runs `own`. `alive` bytes are in memory before
    /// it, of which `ends` are freed after the first step; `after` says whether later blocks read a slot's contents.
    pub(super) fn heights(
        &mut self,
        model: &CostModel,
        (steps, own): (&[ScheduleEntry], u32),
        (alive, ends): (i64, u64),
        after: impl Fn(u32) -> bool,
        heights: &mut Vec<i64>,
    ) {
        let own = ScheduleEntry::first(own);
        self.find_last_reads(model, steps.iter().chain([&own]).rev(), after);
        let bytes = |slot: u32| model.slots[slot as usize].bytes;
        let (mut live, mut ends) = (alive, ends);
        let mut end = self.last.len();
        for (step, unread) in steps.iter().chain([&own]).zip(self.unread.iter().rev()) {
            let mut freed = unread + std::mem::take(&mut ends);
            if let Some(slot) = brought(model, step) {
                heights.push(live + bytes(slot) as i64);
                live += bytes(slot) as i64 - freed as i64;
                continue;
            }
            let work = &model.works[step.node as usize];
            let reads = model.held(work);
            let last = &self.last[end - reads.len()..end];
            end -= reads.len();
            // The first result overwrites an operand after its last read.
            let over = model.over(work).iter().find(|&&at| last[at as usize]);
            let over = over.map_or(0, |&at| bytes(reads[at as usize]));
            heights.push(live + work.room as i64 - over as i64);
            for (&slot, last) in reads.iter().zip(last) {
                freed += if *last { bytes(slot) } else { 0 };
            }
            live += work.written as i64 - freed as i64;
        }
    }

    fn find_last_reads<'s>(
        &mut self,
        model: &CostModel,
        steps: impl Iterator<Item = &'s ScheduleEntry>,
        after: impl Fn(u32) -> bool,
    ) {
        let Self { number, read_later, last, unread } = self;
        *number += 1;
        last.clear();
        unread.clear();
        let mut replace = |slot: u32, by: bool| {
            let (met, later) = &mut read_later[slot as usize];
            let before = if *met == *number { *later } else { after(slot) };
            (*met, *later) = (*number, by);
            before
        };
        for step in steps {
            if let Some(slot) = brought(model, step) {
                let later = replace(slot, false);
                unread.push(if later { 0 } else { model.slots[slot as usize].bytes });
                continue;
            }
            let work = &model.works[step.node as usize];
            // Updates write nothing in the step's arenas.
            let writes = if work.written > 0 { model.writes(work) } else { &[] };
            let mut unused = 0;
            for (at, &slot) in writes.iter().enumerate() {
                let read = step.fresh >> at & 1 == 1 && replace(slot, false);
                unused += if read { 0 } else { model.slots[slot as usize].bytes };
            }
            unread.push(unused);
            last.extend(model.held(work).iter().map(|&slot| !replace(slot, true)));
        }
    }
}
