//! What another choice for some slots changes in a script.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::cost_model::Slot;
use super::script::Retention;
use super::uses::{Use, alive_before, next_look};
use crate::compile::passes::ScheduleEntry;

/// How another choice differs from the present one.
pub(super) struct Change {
    /// Its number: marks with another are of an earlier one.
    pub number: u32,
    /// Slots that were met, and their choice and the operation for which they were recomputed last, under the other choice.
    pub slots: Vec<(u32, Retention, u32)>,
    /// The same under the present choice, by slot, with the number of the change that met the slot.
    pub met: Vec<(u32, Retention, u32)>,
    /// Blocks that recompute something else, in order, and what.
    pub written: Vec<(usize, Range<usize>)>,
    pub steps: Vec<ScheduleEntry>,
    /// Units of time of recomputation and copies.
    pub again: u64,
    /// Slots with other uses, and those.
    pub uses: Vec<(u32, Range<usize>)>,
    pub used: Vec<Use>,
    /// By slot: the number of the change, and the position in `uses`.
    pub listed: Vec<(u32, u32)>,
    /// Blocks that are measured again, in order.
    pub measured: Vec<usize>,
    /// By block: the number of the change in which it is one of those.
    pub is_measured: Vec<u32>,
    /// Bytes alive before each of them, and its heights.
    pub results: Vec<(i64, Range<usize>)>,
    pub heights: Vec<i64>,
    /// By block: bytes that are alive in addition from it on; 0 for blocks that are not in `added_at`.
    pub added: Vec<i64>,
    pub added_at: Vec<usize>,
    /// Other blocks in which more or fewer bytes are alive, and how many.
    pub shifted: Vec<(Range<usize>, i64)>,
    pub excess: u64,
    /// Blocks to write again because of a slot.
    pub queue: BinaryHeap<Reverse<(usize, u32)>>,
    pub looked: Vec<u32>,
    pub differing: Vec<(u32, Use)>,
}

impl Change {
    pub(super) fn new(slots: usize, blocks: usize) -> Self {
        Self {
            number: 0,
            slots: Vec::new(),
            met: vec![(0, Retention::Save, 0); slots],
            written: Vec::new(),
            steps: Vec::new(),
            again: 0,
            uses: Vec::new(),
            used: Vec::new(),
            listed: vec![(0, 0); slots],
            measured: Vec::new(),
            is_measured: vec![0; blocks],
            results: Vec::new(),
            heights: Vec::new(),
            added: vec![0; blocks + 2],
            added_at: Vec::new(),
            shifted: Vec::new(),
            excess: 0,
            queue: BinaryHeap::new(),
            looked: Vec::new(),
            differing: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.number += 1;
        self.slots.clear();
        self.written.clear();
        self.steps.clear();
        self.uses.clear();
        self.used.clear();
        self.measured.clear();
        self.results.clear();
        self.heights.clear();
        self.added_at.drain(..).for_each(|at| self.added[at] = 0);
        self.shifted.clear();
        self.queue.clear();
        self.differing.clear();
    }

    /// Remembers a slot's present choice, and the operation for which it was recomputed last.
    pub(super) fn meet(&mut self, slot: u32, choice: Retention, made: u32) {
        let met = &mut self.met[slot as usize];
        if met.0 != self.number {
            *met = (self.number, choice, made);
            self.slots.push((slot, choice, made));
        }
    }

    /// Writes the next block again that looks at the slot, after `block` or of all.
    pub(super) fn follow(&mut self, slot: u32, uses: &[Use], block: Option<usize>) {
        self.queue.extend(next_look(uses, block).map(|next| Reverse((next, slot))));
    }

    /// The uses of a slot.
    pub(super) fn uses<'u>(&'u self, slot: u32, before: &'u [Vec<Use>]) -> &'u [Use] {
        match self.listed[slot as usize] {
            (number, at) if number == self.number => &self.used[self.uses[at as usize].1.clone()],
            _ => &before[slot as usize],
        }
    }

    /// Other blocks in which more bytes are alive.
    pub(super) fn shift(&mut self, blocks: Range<usize>, bytes: i64) {
        if bytes != 0 && !blocks.is_empty() {
            self.shifted.push((blocks, bytes));
        }
    }

    /// Finds where a slot is alive now, whose uses from `start` on replace those `before`, and the blocks that no longer read it last
    /// or do so now. `end` is after all blocks.
    pub(super) fn compare(&mut self, slot: &Slot, before: &[Use], start: usize, end: usize) {
        let used = std::mem::take(&mut self.used);
        let bytes = slot.bytes as i64;
        let mut lists = [before, &used[start..]];
        for (uses, bytes) in lists.into_iter().zip([-bytes, bytes]) {
            alive_before(slot, uses, end, |from, until| {
                self.added_at.extend([from, until + 1]);
                self.added[from] += bytes;
                self.added[until + 1] -= bytes;
            });
        }
        let mut read_later = [slot.stays; 2];
        while let Some(block) = lists.iter().filter_map(|list| list.last()).map(|last| last.block).max() {
            let last = lists.map(|list| list.last().filter(|last| last.block == block));
            let held = last.iter().flatten().filter(|last| last.holds()).count() == 2;
            if held && read_later[0] != read_later[1] {
                self.measure(block as usize);
            }
            for ((list, later), last) in lists.iter_mut().zip(&mut read_later).zip(last) {
                if let Some(last) = last {
                    *later = if last.holds() { !last.creates() } else { *later };
                    *list = &list[..list.len() - 1];
                }
            }
        }
        self.used = used;
    }

    /// Measures a block again.
    pub(super) fn measure(&mut self, block: usize) {
        if std::mem::replace(&mut self.is_measured[block], self.number) != self.number {
            self.measured.push(block);
        }
    }
}

/// The choice for a slot that is not in memory after a block, if that is so.
pub(super) fn missing_after(block: usize, choice: Retention, made: u32) -> Option<Retention> {
    let missing = match choice {
        Retention::Save => false,
        Retention::RecomputePerUse => true,
        Retention::RecomputeOnce | Retention::Offload => made > block as u32,
    };
    missing.then_some(choice)
}
