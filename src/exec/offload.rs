//! Tensors in the host's memory: brought to the device when it needs them and taken back after it, through two buffers for each
//! direction, so that the host fills or reads one while the device works on the other.

use std::collections::{BTreeMap, BTreeSet};

use super::commands::Commands;
use super::ledger::{Ledger, Purpose};
use super::transfer::Place;
use crate::compile::{OFFLOAD_SLOTS, Plan, host_bytes, offload_piece};
use crate::device::{Buffer, Device, Mapping};
use crate::error::{Error, Result};

/// Contents that lie in the host's memory, by name, and the buffers through which they move.
#[derive(Default)]
pub(super) struct Host {
    contents: BTreeMap<String, Vec<u32>>,
    /// Those that matter within a step only.
    passing: BTreeSet<String>,
    up: Lane,
    down: Lane,
    /// Bytes of each buffer.
    piece: u64,
}

/// Buffers of one direction, used in turn.
#[derive(Default)]
struct Lane {
    slots: Vec<Slot>,
    current: usize,
}

/// A buffer on one of its ways.
struct Slot {
    buffer: Buffer,
    /// On its way to the host; `None` if it is there, or with the device and not yet submitted.
    mapping: Option<Mapping>,
    /// Mapped for the host.
    mapped: bool,
    /// Bytes used so far.
    filled: u64,
    /// What a download holds.
    pieces: Vec<Piece>,
}

/// A part of a tensor in a buffer.
struct Piece {
    name: String,
    /// First byte in the tensor.
    at: u64,
    /// First byte in the buffer.
    from: u64,
    bytes: u64,
}

impl Host {
    /// Creates the buffers that these plans need, and zeros for state that is not there yet.
    pub(super) fn prepare(&mut self, plans: &[&Plan], ledger: &mut Ledger) -> Result<()> {
        for (name, bytes) in host_bytes(plans) {
            if !plans.iter().any(|plan| plan.program.offloaded().any(|storage| storage.name == name)) {
                self.passing.insert(name.clone());
            }
            let words = self.contents.entry(name).or_default();
            words.resize(words.len().max((bytes / 4) as usize), 0);
        }
        self.piece = offload_piece(plans);
        if self.piece == 0 {
            return Ok(());
        }
        for (lane, label, purpose) in [
            (&mut self.up, "offload up", Purpose::Upload),
            (&mut self.down, "offload down", Purpose::Download),
        ] {
            for slot in 0..OFFLOAD_SLOTS {
                let buffer = ledger.create(&format!("{label} {slot}"), self.piece, purpose)?;
                let mapped = purpose == Purpose::Upload;
                lane.slots.push(Slot { buffer, mapping: None, mapped, filled: 0, pieces: Vec::new() });
            }
        }
        Ok(())
    }

    /// Drops the buffers and what matters within a step only; other contents stay. [`Host::settle`] comes before it.
    pub(super) fn release(&mut self) {
        for name in std::mem::take(&mut self.passing) {
            self.contents.remove(&name);
        }
        (self.up, self.down, self.piece) = Default::default();
    }

    /// Waits for everything that is on its way here.
    pub(super) fn settle(&mut self, device: &Device) -> Result<()> {
        (0..self.down.slots.len()).try_for_each(|slot| self.arrive(slot, device))
    }

    /// The words of a tensor, if it lies here; everything on its way has arrived.
    pub(super) fn contents(&mut self, name: &str, device: &Device) -> Result<Option<&mut Vec<u32>>> {
        if !self.contents.contains_key(name) {
            return Ok(None);
        }
        self.settle(device)?;
        Ok(self.contents.get_mut(name))
    }

    /// Keeps the words of a tensor here.
    pub(super) fn keep(&mut self, name: &str, words: Vec<u32>) {
        self.contents.insert(name.to_owned(), words);
    }

    /// Gives up a tensor that lies on the device from now on.
    pub(super) fn forget(&mut self, name: &str) {
        self.contents.remove(name);
    }

    /// Whether a tensor lies here.
    pub(super) fn has(&self, name: &str) -> bool {
        self.contents.contains_key(name)
    }

    /// Records how a tensor is brought to its place on the device.
    pub(super) fn bring(
        &mut self,
        name: &str,
        place: Place,
        commands: &mut Commands,
        device: &Device,
    ) -> Result<()> {
        // What was taken away may still be on its way, or not even submitted.
        for slot in 0..self.down.slots.len() {
            if self.down.slots[slot].pieces.iter().any(|piece| piece.name == name) {
                if self.down.slots[slot].mapping.is_none() {
                    self.submit(commands, device)?;
                }
                self.arrive(slot, device)?;
            }
        }
        let mut done = 0;
        while done < place.bytes {
            if self.up.slots[self.up.current].filled == self.piece {
                self.submit(commands, device)?;
            }
            let slot = &mut self.up.slots[self.up.current];
            slot.write_soon(device)?;
            let bytes = (self.piece - slot.filled).min(place.bytes - done);
            let words = &self.contents[name][(done / 4) as usize..((done + bytes) / 4) as usize];
            let range = slot.filled..slot.filled + bytes;
            let mut view = slot.buffer.get_mapped_range_mut(range).map_err(|e| failed(&e))?;
            view.copy_from_slice(bytemuck::cast_slice(words));
            drop(view);
            let to = place.offset + done;
            commands.encoder().copy_buffer_to_buffer(&slot.buffer, slot.filled, place.buffer, to, bytes);
            slot.fill(bytes);
            done += bytes;
        }
        Ok(())
    }

    /// Records how a tensor is taken from its place on the device.
    pub(super) fn take(
        &mut self,
        name: &str,
        place: Place,
        commands: &mut Commands,
        device: &Device,
    ) -> Result<()> {
        let mut done = 0;
        while done < place.bytes {
            if self.down.slots[self.down.current].filled == self.piece {
                self.submit(commands, device)?;
            }
            self.arrive(self.down.current, device)?;
            let slot = &mut self.down.slots[self.down.current];
            let bytes = (self.piece - slot.filled).min(place.bytes - done);
            let from = place.offset + done;
            commands.encoder().copy_buffer_to_buffer(place.buffer, from, &slot.buffer, slot.filled, bytes);
            slot.pieces.push(Piece { name: name.to_owned(), at: done, from: slot.filled, bytes });
            slot.fill(bytes);
            done += bytes;
        }
        Ok(())
    }

    /// Submits what was recorded; both buffers in use go on their way, and the others take their turn.
    pub(super) fn submit(
        &mut self,
        commands: &mut Commands,
        device: &Device,
    ) -> Result<wgpu::SubmissionIndex> {
        if let Some(slot) = self.up.slots.get_mut(self.up.current).filter(|slot| slot.filled > 0) {
            slot.buffer.unmap();
            slot.mapped = false;
        }
        let submission = commands.submit()?;
        for (lane, mode) in [(&mut self.up, wgpu::MapMode::Write), (&mut self.down, wgpu::MapMode::Read)] {
            if let Some(slot) = lane.slots.get_mut(lane.current).filter(|slot| slot.filled > 0) {
                slot.mapping = Some(device.map(&slot.buffer, mode, .., Some(submission.clone())));
                slot.filled = 0;
                lane.current = (lane.current + 1) % lane.slots.len();
            }
        }
        Ok(submission)
    }

    /// Forgets what was recorded and never submitted.
    pub(super) fn abandon(&mut self) {
        for slot in self.up.slots.iter_mut().chain(&mut self.down.slots) {
            if slot.mapping.is_none() {
                slot.filled = 0;
                slot.pieces.clear();
            }
        }
    }

    /// Waits for a download that was submitted and reads what it holds.
    fn arrive(&mut self, slot: usize, device: &Device) -> Result<()> {
        let slot = &mut self.down.slots[slot];
        let Some(mapping) = slot.mapping.take() else { return Ok(()) };
        mapping.wait(device)?;
        for Piece { name, at, from, bytes } in slot.pieces.drain(..) {
            let view = slot.buffer.get_mapped_range(from..from + bytes).map_err(|e| failed(&e))?;
            if let Some(words) = self.contents.get_mut(&name) {
                let words = &mut words[(at / 4) as usize..((at + bytes) / 4) as usize];
                bytemuck::cast_slice_mut(words).copy_from_slice(&view);
            }
        }
        slot.buffer.unmap();
        Ok(())
    }
}

impl Slot {
    /// Notes that so many bytes more are used; ranges that are mapped begin at multiples of eight.
    fn fill(&mut self, bytes: u64) {
        self.filled = (self.filled + bytes).next_multiple_of(wgpu::MAP_ALIGNMENT);
    }

    /// Waits until the host may write.
    fn write_soon(&mut self, device: &Device) -> Result<()> {
        if let Some(mapping) = self.mapping.take() {
            mapping.wait(device)?;
            self.mapped = true;
        }
        if self.mapped {
            return Ok(());
        }
        // A submit that failed has left it with the device.
        device.map(&self.buffer, wgpu::MapMode::Write, .., None).wait(device)?;
        self.mapped = true;
        Ok(())
    }
}

fn failed(error: &impl std::fmt::Display) -> Error {
    Error::Device { what: "to move an offloaded tensor".to_owned(), message: error.to_string() }
}
