//! Measures the bytes alive while a script runs. The result matches the program built from the script,
//! without building it.

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
    /// Modelled recomputation time, in seconds.
    pub again_s: f64,
    /// Number of dispatches.
    pub launches: u64,
}

/// Measures scripts. Its buffers are reused between scripts.
pub(in crate::compile) struct Meter<'a> {
    model: &'a CostModel,
    /// For each read of each step, in reverse order, whether it is the last read of the slot's current
    /// contents.
    last: Vec<bool>,
    /// Bytes of each step's results that no later step reads.
    unread: Vec<u64>,
    read_later: Vec<bool>,
    stays: Vec<bool>,
    inputs: Vec<u32>,
}

impl<'a> Meter<'a> {
    pub(in crate::compile) fn new(model: &'a CostModel) -> Self {
        let inputs = (0..model.slots.len()).filter(|&slot| model.slots[slot].input).map(|slot| slot as u32);
        Self {
            model,
            last: Vec::new(),
            unread: Vec::new(),
            read_later: Vec::with_capacity(model.slots.len()),
            stays: model.slots.iter().map(|slot| slot.stays).collect(),
            inputs: inputs.collect(),
        }
    }

    pub(in crate::compile) fn measure(&mut self, script: &[ScheduleEntry], target: u64) -> Measure {
        self.find_last_reads(script);
        let model = self.model;
        let bytes = |slot: u32| model.slots[slot as usize].bytes;
        let mut live: u64 = self.inputs.iter().map(|&slot| bytes(slot)).sum();
        let unread_inputs = self.inputs.iter().filter(|&&slot| !self.read_later[slot as usize]);
        let unread_inputs: u64 = unread_inputs.map(|&slot| bytes(slot)).sum();
        let mut measure = Measure::default();
        let mut end = self.last.len();
        for (i, step) in script.iter().enumerate() {
            let work = &model.works[step.node as usize];
            let reads = model.reads(work);
            let last = &self.last[end - reads.len()..end];
            end -= reads.len();
            // The first result overwrites an operand after its last read.
            let over = model.over(work).iter().find(|&&at| last[at as usize]);
            let height = live + work.room - over.map_or(0, |&at| bytes(reads[at as usize]));
            measure.peak = measure.peak.max(height);
            measure.excess += height.saturating_sub(target);
            measure.over += u64::from(height > target);
            measure.launches += work.launches;
            if step.again {
                measure.again_s += work.seconds;
            }
            live += model.writes(work).iter().map(|&slot| bytes(slot)).sum::<u64>();
            live -= self.unread[i];
            for (&slot, last) in reads.iter().zip(last) {
                live -= if *last { bytes(slot) } else { 0 };
            }
            live -= if i == 0 { unread_inputs } else { 0 };
        }
        measure
    }

    fn find_last_reads(&mut self, script: &[ScheduleEntry]) {
        let model = self.model;
        self.last.clear();
        self.unread.clear();
        self.unread.resize(script.len(), 0);
        self.read_later.clone_from(&self.stays);
        for (i, step) in script.iter().enumerate().rev() {
            let work = &model.works[step.node as usize];
            for (at, &slot) in model.writes(work).iter().enumerate() {
                let slot = slot as usize;
                let fresh = step.fresh >> at & 1 == 1;
                if !(fresh && self.read_later[slot]) {
                    self.unread[i] += model.slots[slot].bytes;
                }
                if fresh {
                    self.read_later[slot] = false;
                }
            }
            for &slot in model.reads(work) {
                let later = std::mem::replace(&mut self.read_later[slot as usize], true);
                self.last.push(!later && !model.slots[slot as usize].persistent);
            }
        }
    }
}
