//! Every buffer that a session creates, in bytes: what it creates is this, exactly.

use super::Plan;
use crate::graph::{Class, Graph};

/// Each input has this many staging buffers, so that the next batch is written while a step runs.
pub const STAGING_SLOTS: u64 = 2;
/// Losses that may be on their way from the device at once.
pub const LOSS_RING: u64 = 4;
/// Bytes of a dispatch's `Params`: the largest alignment that WebGPU demands of uniforms.
pub const PARAMS_SLOT: u64 = 256;
/// Largest size of the two buffers through which parameters travel to and from the device.
pub const TRANSFER_BYTES: u64 = 128 << 10;

/// Bytes of the buffers of a session, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Parameters and optimizer state.
    pub persistent: u64,
    /// Everything that lives within a step; programs of one session share it.
    pub step: u64,
    /// `Params` of every dispatch.
    pub uniforms: u64,
    /// Inputs on their way to the device.
    pub staging: u64,
    /// Outputs on their way back.
    pub readback: u64,
    /// Parameters on their way to and from the device.
    pub transfer: u64,
}

impl Footprint {
    /// The buffers of one session over these plans. They must share their parameters.
    pub fn of(plans: &[&Plan]) -> Self {
        let persistent = Self::widest(plans, |plan| &plan.layout.persistent);
        let step = Self::widest(plans, |plan| &plan.layout.step);
        let mut total = Self {
            persistent: persistent.iter().sum(),
            step: step.iter().sum(),
            transfer: 2 * transfer_bytes(&persistent),
            ..Self::default()
        };
        for plan in plans {
            total.uniforms += uniform_bytes(plan);
            total.staging += STAGING_SLOTS * input_bytes(plan.graph());
            total.readback += readback_bytes(plan);
        }
        total
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.persistent + self.step + self.uniforms + self.staging + self.readback + self.transfer
    }

    /// For each arena the largest that any of the plans wants.
    pub(crate) fn widest(plans: &[&Plan], arenas: impl Fn(&Plan) -> &Vec<u64>) -> Vec<u64> {
        let count = plans.iter().map(|plan| arenas(plan).len()).max().unwrap_or(0);
        let size = |i: usize| plans.iter().filter_map(|plan| arenas(plan).get(i).copied()).max().unwrap_or(0);
        (0..count).map(size).collect()
    }
}

/// Bytes of each of the two transfer buffers.
pub(crate) fn transfer_bytes(persistent: &[u64]) -> u64 {
    persistent.iter().copied().max().unwrap_or(0).min(TRANSFER_BYTES)
}

/// Bytes of a program's `Params` buffer.
pub(crate) fn uniform_bytes(plan: &Plan) -> u64 {
    plan.program.launches.len() as u64 * PARAMS_SLOT
}

fn input_bytes(graph: &Graph) -> u64 {
    graph.values.iter().filter(|v| v.class == Class::Input).map(|v| v.bytes()).sum()
}

/// A training step's first output, the loss, goes through a ring; the others are read one at a time.
fn readback_bytes(plan: &Plan) -> u64 {
    let bytes = |i: usize| plan.graph().value(plan.graph().outputs[i].1).bytes();
    (0..plan.graph().outputs.len()).map(|i| bytes(i) * readback_slots(plan, i)).sum()
}

/// How many readback buffers output `i` has.
pub(crate) fn readback_slots(plan: &Plan, i: usize) -> u64 {
    if i == 0 && plan.optimizer.is_some() { LOSS_RING } else { 1 }
}
