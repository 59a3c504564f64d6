//! Compiles the retention of forward results into the list of operations that run.

use super::cost_model::{CostModel, Work};
use crate::compile::passes::ScheduleEntry;

/// How a forward result is stored between its last reader in the forward pass and the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::compile) enum Retention {
    /// Stays in memory until its last reader.
    Save,
    /// Is recomputed when the backward pass first needs it, and then stays until its last reader.
    RecomputeOnce,
    /// Is recomputed for each operation of the backward pass that needs it.
    RecomputePerUse,
    /// Is copied to host memory when it is computed, and copied back when the backward pass first needs it.
    Offload,
}

/// Writes scripts. Its buffers are reused between scripts.
pub(in crate::compile) struct Writer<'a> {
    model: &'a CostModel,
    steps: Vec<ScheduleEntry>,
    /// Position in the order of the first operation that changes a slot: from then on, nothing that reads it can run again.
    changed_at: Vec<usize>,
    /// Slots that are kept for one operation only, whatever is chosen.
    never_kept: Vec<bool>,
    /// Slots that are not in memory: they must be recomputed or copied back.
    missing: Vec<bool>,
    /// Pending recomputations: the slot, its operation, and the number of operands already visited.
    stack: Vec<(u32, u32, u32)>,
    /// Slots kept for one operation only.
    passing: Vec<u32>,
}

impl<'a> Writer<'a> {
    pub(in crate::compile) fn new(model: &'a CostModel) -> Self {
        let mut changed_at = vec![usize::MAX; model.slots.len()];
        for (at, &n) in model.order.iter().enumerate().rev() {
            let changes = model.changes(&model.works[n as usize]);
            changes.iter().for_each(|&slot| changed_at[slot as usize] = at);
        }
        Self {
            model,
            changed_at,
            never_kept: model.slots.iter().map(|slot| slot.passing).collect(),
            steps: Vec::with_capacity(model.order.len() * 2),
            missing: Vec::with_capacity(model.slots.len()),
            stack: Vec::new(),
            passing: Vec::new(),
        }
    }

    /// The order of operations in which forward results that are not kept are recomputed, as late as
    /// possible.
    ///
    /// # Errors
    /// A slot that cannot be recomputed when it is needed, because an update has changed one of its operands.
    pub(in crate::compile) fn write(&mut self, retention: &[Retention]) -> Result<&[ScheduleEntry], usize> {
        let model = self.model;
        self.steps.clear();
        self.passing.clear();
        self.missing.clear();
        let gone = |(choice, never): (&Retention, &bool)| *choice != Retention::Save || *never;
        self.missing.extend(retention.iter().zip(&self.never_kept).map(gone));
        let offloads = retention.contains(&Retention::Offload);
        for &n in model.first() {
            let away = if offloads { self.away(&model.works[n as usize], retention) } else { 0 };
            self.steps.push(ScheduleEntry { away, ..ScheduleEntry::first(n) });
        }
        for (at, &n) in model.order.iter().enumerate().skip(model.first().len()) {
            let work = &model.works[n as usize];
            if !work.forward {
                for &slot in model.held(work) {
                    if self.missing[slot as usize] {
                        self.need(slot, at, retention)?;
                    }
                }
            }
            let away = if offloads { self.away(work, retention) } else { 0 };
            self.steps.push(ScheduleEntry { away, ..ScheduleEntry::first(n) });
            self.passing.iter().for_each(|&slot| self.missing[slot as usize] = true);
            self.passing.clear();
        }
        Ok(&self.steps)
    }

    /// Bit mask of the results of an operation that are copied to host memory.
    fn away(&self, work: &Work, retention: &[Retention]) -> u64 {
        let away = |(i, &slot): (usize, &u32)| u64::from(retention[slot as usize] == Retention::Offload) << i;
        self.model.writes(work).iter().enumerate().map(away).sum()
    }

    /// The operation that recomputes `slot`. This is a fused pair if the pair also computes a missing operand
    /// that would be recomputed only for this use.
    fn maker(&self, slot: u32, retention: &[Retention]) -> Result<u32, usize> {
        let n = self.model.slots[slot as usize].producer.ok_or(slot as usize)?;
        let alone = |(between, _): &&(u32, u32)| {
            self.missing[*between as usize] && retention[*between as usize] == Retention::RecomputePerUse
        };
        let kept = retention[slot as usize] != Retention::Offload;
        let joined = self.model.works[n as usize].joins.iter().find(alone).filter(|_| kept);
        Ok(joined.map_or(n, |(_, joined)| *joined))
    }

    /// Recomputes `slot`, after its missing operands, before operation `at` of the order.
    fn need(&mut self, slot: u32, at: usize, retention: &[Retention]) -> Result<(), usize> {
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
            let reads = model.held(work);
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
            if model.reads(work).iter().any(|&read| self.changed_at[read as usize] < at) {
                // A slot kept for one reader is recomputed only for that reader: keep the reader's result
                // instead.
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
