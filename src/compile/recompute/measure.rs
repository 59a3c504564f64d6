//! Measures the bytes alive while a script runs. The result matches the program built from the script,
//! without building it.

use std::ops::Range;

use super::cost_model::CostModel;
use crate::compile::passes::ScheduleEntry;

/// Memory and time of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::compile) struct Measure {
    /// Maximum bytes alive at once within the step.
    pub peak: u64,
    /// Bytes above the target, summed over the steps.
    pub excess: u64,
    /// Number of steps above the target.
    pub over: u64,
    /// Modelled time of recomputation and of copies of offloaded results, in seconds.
    pub again_s: f64,
}

impl Measure {
    fn add(&mut self, height: u64, target: u64) {
        self.peak = self.peak.max(height);
        self.excess += height.saturating_sub(target);
        self.over += u64::from(height > target);
    }
}

/// One of the first steps of every script: [`CostModel::first`]. What it reads and writes is alive at least until the last of
/// these steps that reads it, so it only depends on the rest of the script whether that read is the last one.
struct First {
    room: u64,
    /// Bytes of its results.
    written: u64,
    /// Bytes that no step after it reads, in any script.
    freed: u64,
    /// Range of [`Meter::ends`].
    ends: Range<usize>,
    /// Range of [`Meter::over`].
    over: Range<usize>,
}

/// The slot that a step copies back from host memory, if that is what it does.
fn brought(model: &CostModel, step: &ScheduleEntry) -> Option<u32> {
    let writes = || model.writes(&model.works[step.node as usize]);
    step.brings_back().then(|| writes()[step.away.trailing_zeros() as usize])
}

/// Measures scripts. Its buffers are reused between scripts.
pub(in crate::compile) struct Meter<'a> {
    model: &'a CostModel,
    first: Vec<First>,
    /// Slots that no other of the first steps reads after this one: freed unless the rest of the script reads them.
    ends: Vec<u32>,
    /// Slots that a result may overwrite if the rest of the script does not read them, or (`true`) in any case.
    over: Vec<(u32, bool)>,
    /// Bytes of each slot.
    bytes: Vec<u64>,
    /// Bytes of all inputs.
    inputs: u64,
    /// Inputs that none of the first steps reads.
    later_inputs: Vec<u32>,
    stays: Vec<bool>,
    /// For each read of each step after the first ones, in reverse order, whether it is the last read of the slot's
    /// current contents.
    last: Vec<bool>,
    /// Bytes of each such step's results that no later step reads.
    unread: Vec<u64>,
    read_later: Vec<bool>,
}

impl<'a> Meter<'a> {
    pub(in crate::compile) fn new(model: &'a CostModel) -> Self {
        let mut meter = Self {
            model,
            first: Vec::new(),
            ends: Vec::new(),
            over: Vec::new(),
            bytes: model.slots.iter().map(|slot| slot.bytes).collect(),
            inputs: model.slots.iter().filter(|slot| slot.input).map(|slot| slot.bytes).sum(),
            later_inputs: Vec::new(),
            stays: model.slots.iter().map(|slot| slot.stays).collect(),
            last: Vec::new(),
            unread: Vec::new(),
            read_later: Vec::with_capacity(model.slots.len()),
        };
        meter.prepare();
        meter
    }

    /// Finds what the first steps read for the last time, as far as it does not depend on the rest of the script.
    fn prepare(&mut self) {
        let model = self.model;
        // Whether a later one of these steps reads the slot's contents; `None` if only the rest of the script could.
        let mut read_later: Vec<Option<bool>> = vec![None; model.slots.len()];
        for &n in model.first().iter().rev() {
            let work = &model.works[n as usize];
            let (mut freed, ends, over) = (0, self.ends.len(), self.over.len());
            for &slot in model.writes(work) {
                match read_later[slot as usize].replace(false) {
                    None => self.ends.push(slot),
                    Some(read) => freed += if read { 0 } else { self.bytes[slot as usize] },
                }
            }
            let reads = model.held(work).iter().map(|&slot| (slot, read_later[slot as usize].replace(true)));
            let reads: Vec<(u32, Option<bool>)> = reads.collect();
            for &(slot, later) in &reads {
                match later {
                    None => self.ends.push(slot),
                    Some(read) => freed += if read { 0 } else { self.bytes[slot as usize] },
                }
            }
            for &at in model.over(work) {
                let (slot, later) = reads[at as usize];
                if later != Some(true) {
                    self.over.push((slot, later.is_some()));
                }
            }
            self.first.push(First {
                room: work.room,
                written: work.written,
                freed,
                ends: ends..self.ends.len(),
                over: over..self.over.len(),
            });
        }
        self.first.reverse();
        let inputs = (0..model.slots.len()).filter(|&slot| model.slots[slot].input);
        self.later_inputs =
            inputs.filter(|&slot| read_later[slot].is_none()).map(|slot| slot as u32).collect();
    }

    /// Returns `None`, without measuring the rest, where the excess is more than `most`.
    pub(in crate::compile) fn measure(
        &mut self,
        script: &[ScheduleEntry],
        target: u64,
        most: u64,
    ) -> Option<Measure> {
        let rest = &script[self.first.len()..];
        self.find_last_reads(rest);
        let model = self.model;
        let bytes = |slot: u32| self.bytes[slot as usize];
        let read_later = |slot: u32| self.read_later[slot as usize];
        let mut live = self.inputs;
        let unread = self.later_inputs.iter().filter(|&&slot| !read_later(slot));
        // Inputs that no step reads are freed after the first one.
        let mut unread_inputs: u64 = unread.map(|&slot| bytes(slot)).sum();
        let mut measure = Measure::default();
        for step in &self.first {
            let over =
                self.over[step.over.clone()].iter().find(|(slot, always)| *always || !read_later(*slot));
            measure.add(live + step.room - over.map_or(0, |&(slot, _)| bytes(slot)), target);
            live += step.written;
            live -= step.freed + std::mem::take(&mut unread_inputs);
            for &slot in &self.ends[step.ends.clone()] {
                live -= if read_later(slot) { 0 } else { bytes(slot) };
            }
        }
        let mut end = self.last.len();
        for (step, unread) in rest.iter().zip(&self.unread) {
            if measure.excess > most {
                return None;
            }
            if let Some(slot) = brought(model, step) {
                measure.add(live + bytes(slot), target);
                measure.again_s += model.slots[slot as usize].away_s.unwrap_or(0.0);
                live += bytes(slot);
                live -= unread + std::mem::take(&mut unread_inputs);
                continue;
            }
            let work = &model.works[step.node as usize];
            let reads = model.held(work);
            let last = &self.last[end - reads.len()..end];
            end -= reads.len();
            // The first result overwrites an operand after its last read.
            let over = model.over(work).iter().find(|&&at| last[at as usize]);
            measure.add(live + work.room - over.map_or(0, |&at| bytes(reads[at as usize])), target);
            if step.again {
                measure.again_s += work.seconds;
            }
            live += work.written;
            live -= unread + std::mem::take(&mut unread_inputs);
            for (&slot, last) in reads.iter().zip(last) {
                live -= if *last { bytes(slot) } else { 0 };
            }
        }
        (measure.excess <= most).then_some(measure)
    }

    /// For the steps after the first ones.
    fn find_last_reads(&mut self, rest: &[ScheduleEntry]) {
        let Self { model, bytes, stays, last, unread, read_later, .. } = self;
        last.clear();
        unread.clear();
        unread.resize(rest.len(), 0);
        read_later.clone_from(stays);
        for (step, unread) in rest.iter().zip(unread).rev() {
            if let Some(slot) = brought(model, step) {
                let later = std::mem::replace(&mut read_later[slot as usize], false);
                *unread += if later { 0 } else { bytes[slot as usize] };
                continue;
            }
            let work = &model.works[step.node as usize];
            // Updates write nothing in the step's arenas.
            let writes = if work.written > 0 { model.writes(work) } else { &[] };
            for (at, &slot) in writes.iter().enumerate() {
                let later = &mut read_later[slot as usize];
                let fresh = step.fresh >> at & 1 == 1;
                if !(fresh && *later) {
                    *unread += bytes[slot as usize];
                }
                *later &= !fresh;
            }
            let reads = model.held(work).iter();
            last.extend(reads.map(|&slot| !std::mem::replace(&mut read_later[slot as usize], true)));
        }
    }
}
