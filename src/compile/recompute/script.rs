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

/// Not computed again yet.
const NOT_YET: u32 = u32::MAX;

/// Writes scripts, operation by operation of the step. Its buffers are reused between scripts.
pub(in crate::compile) struct Writer<'a> {
    model: &'a CostModel,
    steps: Vec<ScheduleEntry>,
    /// Position in the order of the first operation that changes a slot: from then on, nothing that reads it can run again.
    changed_at: Vec<usize>,
    /// Position in the order of the operation for which each slot was recomputed or copied back last.
    made: Vec<u32>,
    /// Slots, and their positions in `made` before each change, the latest change last.
    pub(super) log: Vec<(u32, u32)>,
    /// Pending recomputations: the slot, its operation, and the number of operands already visited.
    stack: Vec<(u32, u32, u32)>,
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
            steps: Vec::with_capacity(model.order.len() * 2),
            made: vec![NOT_YET; model.slots.len()],
            log: Vec::new(),
            stack: Vec::new(),
        }
    }

    /// The order of operations in which forward results that are not kept are recomputed, as late as
    /// possible.
    ///
    /// # Errors
    /// A slot that cannot be recomputed when it is needed, because an update has changed one of its operands.
    pub(in crate::compile) fn write(&mut self, retention: &[Retention]) -> Result<&[ScheduleEntry], usize> {
        self.restart();
        let offloads = retention.contains(&Retention::Offload);
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        for (at, &n) in self.model.order.iter().enumerate() {
            self.write_before(at, retention, &mut steps)?;
            let away = if offloads { self.away(&self.model.works[n as usize], retention) } else { 0 };
            steps.push(ScheduleEntry { away, ..ScheduleEntry::first(n) });
        }
        self.steps = steps;
        Ok(&self.steps)
    }

    /// Begins a script in which nothing is recomputed yet. Returns for which operations slots were recomputed in the one before.
    pub(super) fn restart(&mut self) -> Vec<u32> {
        self.log.clear();
        std::mem::replace(&mut self.made, vec![NOT_YET; self.model.slots.len()])
    }

    /// Continues a script.
    pub(super) fn resume(&mut self, made: Vec<u32>) {
        self.log.clear();
        self.made = made;
    }

    /// Position in the order of the operation for which a slot was recomputed or copied back last.
    pub(super) fn made(&self, slot: u32) -> u32 {
        self.made[slot as usize]
    }

    pub(super) fn set_made(&mut self, slot: u32, at: u32) {
        self.log.push((slot, std::mem::replace(&mut self.made[slot as usize], at)));
    }

    /// The slot is not in memory until it is needed again.
    pub(super) fn forget(&mut self, slot: u32) {
        self.set_made(slot, NOT_YET);
    }

    /// Whether a slot is not in memory when operation `at` of the order needs it.
    fn missing(&self, slot: u32, at: usize, retention: &[Retention]) -> bool {
        let made = self.made[slot as usize];
        match retention[slot as usize] {
            // It is kept for one operation only, whatever is chosen.
            Retention::Save => self.model.slots[slot as usize].passing && made != at as u32,
            Retention::RecomputePerUse => made != at as u32,
            Retention::RecomputeOnce | Retention::Offload => made > at as u32,
        }
    }

    /// Bit mask of the results of an operation that are copied to host memory.
    fn away(&self, work: &Work, retention: &[Retention]) -> u64 {
        let away = |(i, &slot): (usize, &u32)| u64::from(retention[slot as usize] == Retention::Offload) << i;
        self.model.writes(work).iter().enumerate().map(away).sum()
    }

    /// The operation that recomputes `slot`. This is a fused pair if the pair also computes a missing operand
    /// that would be recomputed only for this use.
    fn maker(&self, slot: u32, at: usize, retention: &[Retention]) -> Result<u32, usize> {
        let n = self.model.slots[slot as usize].producer.ok_or(slot as usize)?;
        let alone = |(between, _): &&(u32, u32)| {
            self.missing(*between, at, retention)
                && retention[*between as usize] == Retention::RecomputePerUse
        };
        let kept = retention[slot as usize] != Retention::Offload;
        let joined = self.model.works[n as usize].joins.iter().find(alone).filter(|_| kept);
        Ok(joined.map_or(n, |(_, joined)| *joined))
    }

    /// Writes the operations that recompute the missing operands of operation `at` of the order, each after its own operands.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub(super) fn write_before(
        &mut self,
        at: usize,
        retention: &[Retention],
        steps: &mut Vec<ScheduleEntry>,
    ) -> Result<(), usize> {
        let model = self.model;
        let work = &model.works[model.order[at] as usize];
        if !work.forward {
            for &slot in model.held(work) {
                if self.missing(slot, at, retention) {
                    self.need(slot, at, retention, steps)?;
                }
            }
        }
        Ok(())
    }

    /// Recomputes `slot`, after its missing operands, before operation `at` of the order.
    fn need(
        &mut self,
        slot: u32,
        at: usize,
        retention: &[Retention],
        steps: &mut Vec<ScheduleEntry>,
    ) -> Result<(), usize> {
        let model = self.model;
        let by = self.maker(slot, at, retention)?;
        self.stack.push((slot, by, 0));
        while let Some((slot, n, next)) = self.stack.pop() {
            let work = &model.works[n as usize];
            if retention[slot as usize] == Retention::Offload {
                if self.missing(slot, at, retention) {
                    self.set_made(slot, at as u32);
                    let is_it = |&write: &u32| write == slot;
                    let bit = model.writes(work).iter().position(is_it).map_or(0, |i| 1 << i);
                    steps.push(ScheduleEntry { node: n, again: true, fresh: bit, away: bit });
                }
                continue;
            }
            let reads = model.held(work);
            let rest = &reads[next as usize..];
            if let Some(i) = rest.iter().position(|&read| self.missing(read, at, retention)) {
                self.stack.push((slot, n, next + i as u32 + 1));
                match self.maker(rest[i], at, retention) {
                    Ok(by) => self.stack.push((rest[i], by, 0)),
                    Err(slot) => {
                        self.stack.clear();
                        return Err(slot);
                    }
                }
                continue;
            }
            if !self.missing(slot, at, retention) {
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
                if self.missing(write, at, retention) && retention[write as usize] != Retention::Offload {
                    fresh |= 1 << i;
                    self.set_made(write, at as u32);
                }
            }
            steps.push(ScheduleEntry { node: n, again: true, fresh, away: 0 });
        }
        Ok(())
    }
}
