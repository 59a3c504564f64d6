//! Tensors in host memory: those that are offloaded, and what ranks exchange. They are uploaded before the device
//! needs them and downloaded afterwards, through two buffers for each direction, so that the host fills or reads one
//! while the device works on the other.

use std::collections::{BTreeMap, BTreeSet};

use super::commands::Commands;
use super::ledger::{Ledger, Purpose};
use super::ranks::Exchanges;
use super::transfer::Place;
use crate::compile::{OFFLOAD_SLOTS, Plan, host_bytes, offload_piece};
use crate::device::{Buffer, Device, Mapping};
use crate::error::{Error, Result};
use crate::graph::Exchange;
use crate::maybe_async;

/// Tensors in host memory, by name, and the buffers through which they are transferred.
#[derive(Default)]
pub(super) struct Host {
    contents: BTreeMap<String, Vec<u32>>,
    /// Names of the tensors that are needed only within a step.
    passing: BTreeSet<String>,
    up: Lane,
    down: Lane,
    /// Bytes of each buffer.
    piece: u64,
    pub(super) exchanges: Exchanges,
}

/// Buffers of one direction, used round-robin.
#[derive(Default)]
struct Lane {
    slots: Vec<Slot>,
    current: usize,
}

/// A transfer buffer and its state.
struct Slot {
    buffer: Buffer,
    /// Pending mapping for the host. `None` if the host has the buffer already, or if recorded commands use
    /// it that are not yet submitted.
    mapping: Option<Mapping>,
    /// Whether the host may write to it (upload buffers only).
    mapped: bool,
    /// Bytes used so far.
    filled: u64,
    /// The parts of tensors that a download buffer holds.
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
    /// Creates the buffers that these plans need, and zero-filled host memory for tensors that do not have
    /// any yet.
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

    /// Drops the buffers and the tensors that are needed only within a step; other tensors stay. Call
    /// [`Host::settle`] first.
    pub(super) fn release(&mut self) {
        for name in std::mem::take(&mut self.passing) {
            self.contents.remove(&name);
        }
        (self.up, self.down, self.piece) = Default::default();
    }

    /// Waits for all pending downloads.
    #[maybe_async]
    pub(super) async fn flush(&mut self, device: &Device) -> Result<()> {
        for slot in 0..self.down.slots.len() {
            self.arrive(slot, device).await?;
        }
        Ok(())
    }

    /// Returns the words of a tensor if it is in host memory, after waiting for all pending downloads.
    #[maybe_async]
    pub(super) async fn contents(&mut self, name: &str, device: &Device) -> Result<Option<&mut Vec<u32>>> {
        if !self.contents.contains_key(name) {
            return Ok(None);
        }
        self.flush(device).await?;
        Ok(self.contents.get_mut(name))
    }

    /// Stores the words of a tensor in host memory.
    pub(super) fn keep(&mut self, name: &str, words: Vec<u32>) {
        self.contents.insert(name.to_owned(), words);
    }

    /// Removes a tensor whose contents are on the device from now on.
    pub(super) fn forget(&mut self, name: &str) {
        self.contents.remove(name);
    }

    /// Whether a tensor is in host memory.
    pub(super) fn has(&self, name: &str) -> bool {
        self.contents.contains_key(name)
    }

    /// Records the upload of a tensor to its place on the device, from byte `start` of what the host has under
    /// this name.
    #[maybe_async]
    pub(super) async fn upload(
        &mut self,
        (name, start): (&str, u64),
        place: Place<'_>,
        commands: &mut Commands,
        device: &Device,
    ) -> Result<()> {
        // The download of these bytes may still be pending, or not even submitted.
        let end = start + place.bytes;
        let own = |piece: &Piece| piece.name == name && piece.at < end && start < piece.at + piece.bytes;
        for slot in 0..self.down.slots.len() {
            if self.down.slots[slot].pieces.iter().any(own) {
                if self.down.slots[slot].mapping.is_none() {
                    self.submit(commands, device)?;
                }
                self.arrive(slot, device).await?;
            }
        }
        let mut done = 0;
        while done < place.bytes {
            if self.up.slots[self.up.current].filled == self.piece {
                self.submit(commands, device)?;
            }
            let slot = &mut self.up.slots[self.up.current];
            slot.write_soon(device).await?;
            let bytes = (self.piece - slot.filled).min(place.bytes - done);
            let from = start + done;
            let words = &self.contents[name][(from / 4) as usize..((from + bytes) / 4) as usize];
            let range = slot.filled..slot.filled + bytes;
            let mut view = slot.buffer.get_mapped_range_mut(range).map_err(|e| failed(device, &e))?;
            view.copy_from_slice(bytemuck::cast_slice(words));
            drop(view);
            let to = place.offset + done;
            commands.encoder().copy_buffer_to_buffer(&slot.buffer, slot.filled, place.buffer, to, bytes);
            slot.fill(bytes);
            done += bytes;
        }
        Ok(())
    }

    /// Records the download of a tensor from its place on the device, to byte `start` of what the host has under
    /// this name.
    #[maybe_async]
    pub(super) async fn take(
        &mut self,
        (name, start): (&str, u64),
        place: Place<'_>,
        commands: &mut Commands,
        device: &Device,
    ) -> Result<()> {
        let mut done = 0;
        while done < place.bytes {
            if self.down.slots[self.down.current].filled == self.piece {
                self.submit(commands, device)?;
            }
            self.arrive(self.down.current, device).await?;
            let slot = &mut self.down.slots[self.down.current];
            let bytes = (self.piece - slot.filled).min(place.bytes - done);
            let from = place.offset + done;
            commands.encoder().copy_buffer_to_buffer(place.buffer, from, &slot.buffer, slot.filled, bytes);
            slot.pieces.push(Piece { name: name.to_owned(), at: start + done, from: slot.filled, bytes });
            slot.fill(bytes);
            done += bytes;
        }
        Ok(())
    }

    /// Submits what was recorded. The two buffers in use are then mapped as soon as the device is done with
    /// them, and the next buffer of each direction becomes current.
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

    /// Submits what was recorded, after the last words of an exchange, so that they leave while the device goes on.
    pub(super) fn send(&mut self, index: u32, commands: &mut Commands, device: &Device) -> Result<()> {
        self.submit(commands, device)?;
        self.exchanges.leaves(index);
        Ok(())
    }

    /// Receives the exchanges of a plan up to one, unless they are already here. Sends first what has arrived from the
    /// device, and waits for what is to be sent up to this exchange.
    #[maybe_async]
    pub(super) async fn receive(&mut self, index: u32, all: &[Exchange], device: &Device) -> Result<()> {
        while let Some(next) = self.exchanges.next_to_send(index) {
            let exchange = &all[next as usize];
            let [sent, _] = exchange.names();
            for slot in 0..self.down.slots.len() {
                if self.down.slots[slot].pieces.iter().any(|piece| piece.name == sent) {
                    self.arrive(slot, device).await?;
                }
            }
            self.exchanges.send(exchange, &self.contents[&sent])?;
        }
        while let Some(next) = self.exchanges.next_to_receive(index) {
            let exchange = &all[next as usize];
            let [sent, received] = exchange.names();
            let mut words = self.contents.remove(&received).unwrap_or_default();
            let end = exchange.received() as usize;
            let outcome = self.exchanges.receive(exchange, &self.contents[&sent], &mut words[..end]);
            self.contents.insert(received, words);
            outcome?;
        }
        Ok(())
    }

    /// Discards transfers that were recorded and never submitted.
    pub(super) fn abandon(&mut self) {
        for slot in self.up.slots.iter_mut().chain(&mut self.down.slots) {
            if slot.mapping.is_none() {
                slot.filled = 0;
                slot.pieces.clear();
            }
        }
    }

    /// Waits for a download that was submitted and copies it to the tensors in host memory.
    #[maybe_async]
    async fn arrive(&mut self, slot: usize, device: &Device) -> Result<()> {
        let slot = &mut self.down.slots[slot];
        let Some(mapping) = slot.mapping.take() else { return Ok(()) };
        mapping.wait(device).await?;
        for Piece { name, at, from, bytes } in slot.pieces.drain(..) {
            let view = slot.buffer.get_mapped_range(from..from + bytes).map_err(|e| failed(device, &e))?;
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
    /// Marks `bytes` more as used. The next range starts at a multiple of `MAP_ALIGNMENT`, eight bytes, as
    /// mapped ranges must.
    fn fill(&mut self, bytes: u64) {
        self.filled = (self.filled + bytes).next_multiple_of(wgpu::MAP_ALIGNMENT);
    }

    /// Waits until the buffer is mapped for writing.
    #[maybe_async]
    async fn write_soon(&mut self, device: &Device) -> Result<()> {
        if let Some(mapping) = self.mapping.take() {
            mapping.wait(device).await?;
            self.mapped = true;
        }
        if self.mapped {
            return Ok(());
        }
        // After a failed submit the buffer is unmapped and no mapping is pending.
        device.map(&self.buffer, wgpu::MapMode::Write, .., None).wait(device).await?;
        self.mapped = true;
        Ok(())
    }
}

fn failed(device: &Device, error: &dyn std::fmt::Display) -> Error {
    device.refused("to move an offloaded tensor", error)
}
