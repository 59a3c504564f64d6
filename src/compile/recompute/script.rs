//! From what becomes of each forward result to the list of operations that run.

use super::tape::{Slot, Tape, Work};
use crate::compile::passes::Step;

/// What becomes of a forward result between its last reader in the forward pass and the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::compile) enum Fate {
    /// Stays in memory as long as anyone reads it.
    Keep,
    /// Is computed again when the backward pass first needs it, and then stays until nobody does.
    Once,
    /// Is computed again for each operation of the backward pass that needs it.
    Each,
    /// Goes to the host's memory when it is made, and comes back when the backward pass first needs it.
    Away,
}

/// Writes scripts; its memory is used again from one to the next.
pub(in crate::compile) struct Writer<'a> {
    tape: &'a Tape,
    steps: Vec<Step>,
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
    pub(in crate::compile) fn new(tape: &'a Tape) -> Self {
        Self {
            tape,
            steps: Vec::with_capacity(tape.order.len() * 2),
            missing: Vec::with_capacity(tape.slots.len()),
            changed: Vec::with_capacity(tape.slots.len()),
            stack: Vec::new(),
            passing: Vec::new(),
        }
    }

    /// The order of operations in which forward results that are not kept are computed again, as late as can be.
    ///
    /// # Errors
    /// A slot that cannot be computed again when it is needed, because an update has changed what it is made of.
    pub(in crate::compile) fn write(&mut self, fates: &[Fate]) -> Result<&[Step], usize> {
        let tape = self.tape;
        self.steps.clear();
        self.passing.clear();
        self.missing.clear();
        let gone = |(fate, slot): (&Fate, &Slot)| *fate != Fate::Keep || slot.passing;
        self.missing.extend(fates.iter().zip(&tape.slots).map(gone));
        self.changed.clear();
        self.changed.resize(fates.len(), false);
        for &n in &tape.order {
            let work = &tape.works[n as usize];
            if !work.forward {
                for &slot in tape.reads(work) {
                    if self.missing[slot as usize] {
                        self.need(slot, fates)?;
                    }
                }
            }
            let away = self.away(work, fates);
            self.steps.push(Step { away, ..Step::first(n) });
            for slot in self.passing.drain(..) {
                self.missing[slot as usize] = true;
            }
            tape.changes(work).iter().for_each(|&slot| self.changed[slot as usize] = true);
        }
        Ok(&self.steps)
    }

    /// Which results of an operation go to the host's memory.
    fn away(&self, work: &Work, fates: &[Fate]) -> u64 {
        let away = |(i, &slot): (usize, &u32)| u64::from(fates[slot as usize] == Fate::Away) << i;
        self.tape.writes(work).iter().enumerate().map(away).sum()
    }

    /// The operation that makes `slot` again: of those that make an operand in the same go, which nobody else would have.
    fn maker(&self, slot: u32, fates: &[Fate]) -> Result<u32, usize> {
        let n = self.tape.slots[slot as usize].producer.ok_or(slot as usize)?;
        let alone = |(between, _): &&(u32, u32)| {
            self.missing[*between as usize] && fates[*between as usize] == Fate::Each
        };
        let kept = fates[slot as usize] != Fate::Away;
        let joined = self.tape.works[n as usize].joins.iter().find(alone).filter(|_| kept);
        Ok(joined.map_or(n, |(_, joined)| *joined))
    }

    /// Computes `slot` again, after what it is made of.
    fn need(&mut self, slot: u32, fates: &[Fate]) -> Result<(), usize> {
        let tape = self.tape;
        let by = self.maker(slot, fates)?;
        self.stack.push((slot, by, 0));
        while let Some((slot, n, next)) = self.stack.pop() {
            let work = &tape.works[n as usize];
            if fates[slot as usize] == Fate::Away {
                if std::mem::replace(&mut self.missing[slot as usize], false) {
                    let is_it = |&write: &u32| write == slot;
                    let bit = tape.writes(work).iter().position(is_it).map_or(0, |i| 1 << i);
                    self.steps.push(Step { node: n, again: true, fresh: bit, away: bit });
                }
                continue;
            }
            let reads = tape.reads(work);
            let rest = &reads[next as usize..];
            if let Some(i) = rest.iter().position(|&read| self.missing[read as usize]) {
                self.stack.push((slot, n, next + i as u32 + 1));
                let by = self.maker(rest[i], fates)?;
                self.stack.push((rest[i], by, 0));
                continue;
            }
            if !self.missing[slot as usize] {
                continue;
            }
            if reads.iter().any(|&read| self.changed[read as usize]) {
                // What lasts for one reader is only missing for the reader's sake.
                let blamed = match self.stack.last() {
                    Some(&(reader, ..)) if tape.slots[slot as usize].passing => reader,
                    _ => slot,
                };
                self.stack.clear();
                return Err(blamed as usize);
            }
            let mut fresh = 0;
            for (i, &write) in tape.writes(work).iter().enumerate() {
                if self.missing[write as usize] && fates[write as usize] != Fate::Away {
                    fresh |= 1 << i;
                    self.missing[write as usize] = false;
                    if fates[write as usize] == Fate::Each || tape.slots[write as usize].passing {
                        self.passing.push(write);
                    }
                }
            }
            self.steps.push(Step { node: n, again: true, fresh, away: 0 });
        }
        Ok(())
    }
}
