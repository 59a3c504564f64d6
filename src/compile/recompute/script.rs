//! From what becomes of each forward result to the list of operations that run.

use super::cost_model::{CostModel, Slot, Work};
use crate::compile::passes::ScheduleEntry;

/// What becomes of a forward result between its last reader in the forward pass and the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::compile) enum Retention {
    /// Stays in memory as long as anyone reads it.
    Save,
    /// Is computed again when the backward pass first needs it, and then stays until nobody does.
    RecomputeOnce,
    /// Is computed again for each operation of the backward pass that needs it.
    RecomputePerUse,
    /// Goes to the host's memory when it is made, and comes back when the backward pass first needs it.
    Offload,
}

/// Writes scripts; its memory is used again from one to the next.
pub(in crate::compile) struct Writer<'a> {
    model: &'a CostModel,
    steps: Vec<ScheduleEntry>,
    /// Slots that are not to be had without computing them again.
    missing: Vec<bool>,
    /// Slots that an update has changed.
    changed: Vec<bool>,
    /// What is to be computed again: the slot, its operation, and how many of its operands were looked at.
    stack: Vec<(u32, u32, u32)>,
    /// Slots that are there for one operation only.
    passing: Vec<u32>,
}

impl<'a> Writer<'a> {
    pub(in crate::compile) fn new(model: &'a CostModel) -> Self {
        Self {
            model,
            steps: Vec::with_capacity(model.order.len() * 2),
            missing: Vec::with_capacity(model.slots.len()),
            changed: Vec::with_capacity(model.slots.len()),
            stack: Vec::new(),
            passing: Vec::new(),
        }
    }

    /// The order of operations in which forward results that are not kept are computed again, as late as can be.
    ///
    /// # Errors
    /// A slot that cannot be computed again when it is needed, because an update has changed what it is made of.
    pub(in crate::compile) fn write(&mut self, retention: &[Retention]) -> Result<&[ScheduleEntry], usize> {
        let model = self.model;
        self.steps.clear();
        self.passing.clear();
        self.missing.clear();
        let gone = |(choice, slot): (&Retention, &Slot)| *choice != Retention::Save || slot.passing;
        self.missing.extend(retention.iter().zip(&model.slots).map(gone));
        self.changed.clear();
        self.changed.resize(retention.len(), false);
        for &n in &model.order {
            let work = &model.works[n as usize];
            if !work.forward {
                for &slot in model.reads(work) {
                    if self.missing[slot as usize] {
                        self.need(slot, retention)?;
                    }
                }
            }
            let away = self.away(work, retention);
            self.steps.push(ScheduleEntry { away, ..ScheduleEntry::first(n) });
            for slot in self.passing.drain(..) {
                self.missing[slot as usize] = true;
            }
            model.changes(work).iter().for_each(|&slot| self.changed[slot as usize] = true);
        }
        Ok(&self.steps)
    }

    /// Which results of an operation go to the host's memory.
    fn away(&self, work: &Work, retention: &[Retention]) -> u64 {
        let away = |(i, &slot): (usize, &u32)| u64::from(retention[slot as usize] == Retention::Offload) << i;
        self.model.writes(work).iter().enumerate().map(away).sum()
    }

    /// The operation that makes `slot` again: of those that make an operand in the same go, which nobody else would have.
    fn maker(&self, slot: u32, retention: &[Retention]) -> Result<u32, usize> {
        let n = self.model.slots[slot as usize].producer.ok_or(slot as usize)?;
        let alone = |(between, _): &&(u32, u32)| {
            self.missing[*between as usize] && retention[*between as usize] == Retention::RecomputePerUse
        };
        let kept = retention[slot as usize] != Retention::Offload;
        let joined = self.model.works[n as usize].joins.iter().find(alone).filter(|_| kept);
        Ok(joined.map_or(n, |(_, joined)| *joined))
    }

    /// Computes `slot` again, after what it is made of.
    fn need(&mut self, slot: u32, retention: &[Retention]) -> Result<(), usize> {
        let model = self.model;
        let by = self.maker(slot, retention)?;
        self.stack.push((slot, by, 0));
        while let Some((slot, n, next)) = self.stack.pop() {
            let work = &model.works[n as usize];
            if retention[slot as usize] == Retention::Offload {
                if std::mem::replace(&mut self.missing[slot as usize], false) {
                    let is_it = |&write: &u32| write == slot;
                    let bit = model.writes(work).iter().position(is_it).map_or(0, |i| 1 << i);
                    self.steps.push(ScheduleEntry { node: n, again: true, fresh: bit, away: bit });
                }
                continue;
            }
            let reads = model.reads(work);
            let rest = &reads[next as usize..];
            if let Some(i) = rest.iter().position(|&read| self.missing[read as usize]) {
                self.stack.push((slot, n, next + i as u32 + 1));
                let by = self.maker(rest[i], retention)?;
                self.stack.push((rest[i], by, 0));
                continue;
            }
            if !self.missing[slot as usize] {
                continue;
            }
            if reads.iter().any(|&read| self.changed[read as usize]) {
                // What lasts for one reader is only missing for the reader's sake.
                let blamed = match self.stack.last() {
                    Some(&(reader, ..)) if model.slots[slot as usize].passing => reader,
                    _ => slot,
                };
                self.stack.clear();
                return Err(blamed as usize);
            }
            let mut fresh = 0;
            for (i, &write) in model.writes(work).iter().enumerate() {
                if self.missing[write as usize] && retention[write as usize] != Retention::Offload {
                    fresh |= 1 << i;
                    self.missing[write as usize] = false;
                    if retention[write as usize] == Retention::RecomputePerUse
                        || model.slots[write as usize].passing
                    {
                        self.passing.push(write);
                    }
                }
            }
            self.steps.push(ScheduleEntry { node: n, again: true, fresh, away: 0 });
        }
        Ok(())
    }
}
