//! The exact size in bytes of every buffer that a session creates.

use std::collections::BTreeMap;

use crate::compile::Plan;
use crate::graph::{Class, Graph};
use crate::limits::ALIGNMENT;

/// Staging buffers per input, so that the next batch is written while a step runs.
pub const STAGING_SLOTS: u64 = 2;
/// Maximum number of losses in flight from the device at once.
pub const LOSS_RING: u64 = 4;
/// Bytes of one dispatch's `Params`: the largest alignment that WebGPU requires of uniforms.
pub const PARAMS_SLOT: u64 = 256;
/// Maximum bytes of each of the two buffers that copy parameters to and from the device.
pub const TRANSFER_BYTES: u64 = 128 << 10;
/// Buffers per direction that copy tensors to and from host memory: the host fills or reads one while the
/// device works on the other.
pub const OFFLOAD_SLOTS: u64 = 2;
/// Each of these buffers holds this fraction, 1/32, of the bytes copied in a step, clamped to the bounds
/// below.
const OFFLOAD_SHARE: u64 = 32;
const OFFLOAD_LEAST: u64 = 64 << 10;
const OFFLOAD_MOST: u64 = 8 << 20;

/// Bytes of the buffers of a session, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Parameters and optimizer state.
    pub persistent: u64,
    /// Everything allocated within a step; programs of one session share it.
    pub step: u64,
    /// `Params` of every dispatch.
    pub uniforms: u64,
    /// Staging buffers of inputs.
    pub staging: u64,
    /// Readback buffers of outputs.
    pub readback: u64,
    /// Buffers that copy parameters to and from the device.
    pub transfer: u64,
    /// Buffers that copy offloaded tensors between the device and host memory: two per direction.
    pub offload: u64,
    /// Host memory for offloaded tensors. It is not part of the total.
    pub host: u64,
}

impl Footprint {
    /// The buffers of one session over these plans. The plans must share their parameters.
    pub fn of(plans: &[&Plan]) -> Self {
        let persistent = Self::widest(plans, |plan| &plan.layout.persistent);
        let step = Self::widest(plans, |plan| &plan.layout.step);
        let mut total = Self {
            persistent: persistent.iter().sum(),
            step: step.iter().sum(),
            transfer: 2 * transfer_bytes(&persistent),
            offload: offload_buffers(moved(plans)),
            host: host_bytes(plans).values().sum(),
            ..Self::default()
        };
        for plan in plans {
            total.uniforms += uniform_bytes(plan);
            total.staging += STAGING_SLOTS * input_bytes(plan.graph());
            total.readback += readback_bytes(plan);
        }
        total
    }

    /// Total bytes on the device: everything except [`Footprint::host`].
    pub fn total(&self) -> u64 {
        let moving = self.staging + self.readback + self.transfer + self.offload;
        self.persistent + self.step + self.uniforms + moving
    }

    /// For each arena, its largest size over all plans.
    pub(crate) fn widest(plans: &[&Plan], arenas: impl Fn(&Plan) -> &Vec<u64>) -> Vec<u64> {
        let count = plans.iter().map(|plan| arenas(plan).len()).max().unwrap_or(0);
        let size = |i: usize| plans.iter().filter_map(|plan| arenas(plan).get(i).copied()).max().unwrap_or(0);
        (0..count).map(size).collect()
    }
}

/// Bytes stored in host memory for a session, by name; programs share them.
pub(crate) fn host_bytes(plans: &[&Plan]) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (name, bytes) in plans.iter().flat_map(|plan| plan.program.host_bytes()) {
        let most: &mut u64 = all.entry(name).or_default();
        *most = bytes.max(*most);
    }
    all
}

/// The most bytes of tensors in host memory that a step of one of the plans copies.
fn moved(plans: &[&Plan]) -> u64 {
    plans.iter().map(|plan| plan.program.host_bytes().values().sum()).max().unwrap_or(0)
}

/// Bytes of each buffer that copies tensors to and from host memory.
#[cfg(feature = "gpu")]
pub(crate) fn offload_piece(plans: &[&Plan]) -> u64 {
    piece(moved(plans))
}

/// A small fraction of the bytes copied, and no more than needed to hide the cost of a submit.
fn piece(moved: u64) -> u64 {
    let piece = (moved / OFFLOAD_SHARE).clamp(OFFLOAD_LEAST.min(moved), OFFLOAD_MOST);
    piece.next_multiple_of(ALIGNMENT)
}

/// Bytes of all buffers that copy tensors of `moved` bytes to and from host memory.
pub(in crate::compile) fn offload_buffers(moved: u64) -> u64 {
    2 * OFFLOAD_SLOTS * piece(moved)
}

/// Bytes of each of the two transfer buffers.
pub(crate) fn transfer_bytes(persistent: &[u64]) -> u64 {
    persistent.iter().copied().max().unwrap_or(0).min(TRANSFER_BYTES)
}

/// Bytes of a program's `Params` buffer.
pub(crate) fn uniform_bytes(plan: &Plan) -> u64 {
    plan.program.dispatches as u64 * PARAMS_SLOT
}

fn input_bytes(graph: &Graph) -> u64 {
    graph.values.iter().filter(|v| v.class == Class::Input).map(|v| v.bytes()).sum()
}

/// The first output of a training step, the loss, uses a ring of buffers; the other outputs are read one at a
/// time.
fn readback_bytes(plan: &Plan) -> u64 {
    let bytes = |i: usize| plan.graph().value(plan.graph().outputs[i].1).bytes();
    (0..plan.graph().outputs.len()).map(|i| bytes(i) * readback_slots(plan, i)).sum()
}

/// Number of readback buffers of output `i`.
pub(crate) fn readback_slots(plan: &Plan, i: usize) -> u64 {
    if i == 0 && plan.optimizer.is_some() { LOSS_RING } else { 1 }
}
