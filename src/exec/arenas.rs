//! The buffers that hold a session's regions.

use super::ledger::{Ledger, Purpose};
use super::transfer::Place;
use crate::compile::{Footprint, Plan, Region, StorageId};
use crate::device::Buffer;
use crate::error::{Error, Result};
use crate::graph::{CORRECTION, ValueId};

/// Buffers that all plans of a session share.
pub(super) struct Arenas {
    /// Parameters and optimizer state.
    pub(super) persistent: Vec<Buffer>,
    /// Tensors that live within a step.
    pub(super) step: Vec<Buffer>,
}

impl Arenas {
    /// Creates the buffers for parameters and optimizer state.
    pub(super) fn persistent(plans: &[&Plan], ledger: &mut Ledger) -> Result<Vec<Buffer>> {
        create("persistent", Footprint::widest(plans, |plan| &plan.layout.persistent), plans, ledger)
    }

    /// Creates the buffers for tensors that live within a step.
    pub(super) fn step(plans: &[&Plan], ledger: &mut Ledger) -> Result<Vec<Buffer>> {
        create("step", Footprint::widest(plans, |plan| &plan.layout.step), plans, ledger)
    }

    /// Returns buffer and offset of a byte of a storage.
    pub(super) fn place(&self, plan: &Plan, storage: StorageId, offset: u64) -> (&wgpu::Buffer, u64) {
        self.at(plan.layout.locate(&plan.program, storage, offset))
    }

    fn at(&self, region: Region) -> (&wgpu::Buffer, u64) {
        let arenas = if region.arena.persistent { &self.persistent } else { &self.step };
        let buffer: &wgpu::Buffer = &arenas[region.arena.index as usize];
        (buffer, region.offset)
    }

    /// Returns buffer and offset of an input or output.
    pub(super) fn place_of(&self, plan: &Plan, value: ValueId) -> (&wgpu::Buffer, u64) {
        let storage = plan.program.storage_of[value.index()].expect("inputs and outputs have storage");
        self.place(plan, storage, plan.program.offset_of[value.index()])
    }

    /// Returns the places of the elements of a storage, without padding: one in each buffer.
    pub(super) fn elements(&self, plan: &Plan, storage: StorageId) -> Vec<Place<'_>> {
        let place = |(region, _, bytes): (Region, u64, u64)| {
            let (buffer, offset) = self.at(region);
            Place { buffer, offset, bytes }
        };
        plan.layout.parts(&plan.program, storage).map(place).collect()
    }
}

fn create(kind: &str, sizes: Vec<u64>, plans: &[&Plan], ledger: &mut Ledger) -> Result<Vec<Buffer>> {
    let one = |(i, &bytes): (usize, &u64)| {
        let created = ledger.create(&format!("{kind}.{i}"), bytes, Purpose::Arena);
        created.map_err(|error| explained(error, plans))
    };
    sizes.iter().enumerate().map(one).collect()
}

/// Adds the largest tensors at the peak to an out-of-memory error.
fn explained(mut error: Error, plans: &[&Plan]) -> Error {
    if let (Error::OutOfMemory { holds, .. }, Some(plan)) =
        (&mut error, plans.iter().max_by_key(|plan| plan.peak_bytes()))
    {
        *holds = format!("{} at the peak, {}", plan.largest_at_peak(3), plan.peak.at);
    }
    error
}

/// Returns the storage of the optimizer state with what a parameter's 16 bits lack; `None` if it has none.
pub(super) fn correction_of(plan: &Plan, parameter: &str) -> Option<StorageId> {
    let name = format!("{parameter}.{CORRECTION}");
    // Parameters are the first storages.
    let state = plan.program.storages.iter().enumerate().skip(plan.graph().parameters.len());
    let mut named = state.filter(|(_, storage)| storage.is_state() && storage.name == name);
    named.next().map(|(i, _)| StorageId(i as u32))
}

/// Finds the storage of a parameter or optimizer state by name.
///
/// # Errors
/// [`Error::Unknown`] with the names there are.
pub(super) fn lasting_storage(plan: &Plan, name: &str) -> Result<StorageId> {
    let storages = &plan.program.storages;
    match storages.iter().position(|s| s.is_state() && s.name == name) {
        Some(i) => Ok(StorageId(i as u32)),
        None => {
            let known = storages.iter().filter(|s| s.is_state()).map(|s| s.name.clone()).collect();
            Err(Error::Unknown { kind: "parameter", name: name.to_owned(), known })
        }
    }
}
