//! Outputs in flight to the host: the loss goes through a ring of buffers that never stalls the device, other
//! outputs are read on request.

use super::ledger::{Ledger, Purpose};
use crate::device::{Buffer, Device, Mapping};
use crate::error::Result;
use crate::maybe_async;
use std::collections::VecDeque;

/// A submitted copy that was not read yet.
struct Flight {
    slot: usize,
    step: u64,
    mapping: Mapping,
}

/// Buffers through which one output is read.
pub(super) struct Readback {
    buffers: Vec<Buffer>,
    bytes: u64,
    flights: VecDeque<Flight>,
}

impl Readback {
    pub(super) fn new(name: &str, bytes: u64, slots: u64, ledger: &mut Ledger) -> Result<Self> {
        let create = |slot| ledger.create(&format!("readback of {name} {slot}"), bytes, Purpose::Download);
        let buffers = (0..slots).map(create).collect::<Result<Vec<_>>>()?;
        Ok(Self { buffers, bytes, flights: VecDeque::new() })
    }

    /// Makes room for one more copy. If all buffers are in use, waits for the oldest copy and returns its
    /// step and data.
    #[maybe_async]
    pub(super) async fn make_room<T: bytemuck::Pod>(
        &mut self,
        device: &Device,
    ) -> Result<Option<(u64, Vec<T>)>> {
        if self.flights.len() < self.buffers.len() { Ok(None) } else { self.wait_oldest(device).await }
    }

    /// Records the copy from an arena and returns the slot that it goes to; the caller must call
    /// [`Readback::submitted`] after the submit.
    pub(super) fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        from: &wgpu::Buffer,
        offset: u64,
    ) -> usize {
        let busy = |slot: usize| self.flights.iter().any(|flight| flight.slot == slot);
        let slot = (0..self.buffers.len()).find(|&slot| !busy(slot)).expect("make_room was called");
        encoder.copy_buffer_to_buffer(from, offset, &self.buffers[slot], 0, self.bytes);
        slot
    }

    pub(super) fn submitted(
        &mut self,
        device: &Device,
        slot: usize,
        step: u64,
        submission: wgpu::SubmissionIndex,
    ) {
        let mapping = device.map(&self.buffers[slot], wgpu::MapMode::Read, .., Some(submission));
        self.flights.push_back(Flight { slot, step, mapping });
    }

    /// Returns the copies that have arrived, in order, without waiting.
    pub(super) fn arrived<T: bytemuck::Pod>(&mut self, device: &Device) -> Result<Vec<(u64, Vec<T>)>> {
        device.poll()?;
        let mut arrived = Vec::new();
        while self.flights.front().is_some_and(|flight| flight.mapping.is_done()) {
            let flight = self.flights.pop_front();
            arrived.extend(flight.map(|flight| self.read(&flight, device)).transpose()?);
        }
        Ok(arrived)
    }

    /// Waits for the oldest submitted copy and returns it.
    #[maybe_async]
    pub(super) async fn wait_oldest<T: bytemuck::Pod>(
        &mut self,
        device: &Device,
    ) -> Result<Option<(u64, Vec<T>)>> {
        let Some(flight) = self.flights.pop_front() else { return Ok(None) };
        flight.mapping.wait(device).await?;
        self.read(&flight, device).map(Some)
    }

    /// Reads a copy whose buffer is mapped.
    fn read<T: bytemuck::Pod>(&self, flight: &Flight, device: &Device) -> Result<(u64, Vec<T>)> {
        let buffer = &self.buffers[flight.slot];
        let view = buffer.get_mapped_range(..).map_err(|e| device.refused("to read an output", &e))?;
        let data = bytemuck::pod_collect_to_vec(&view);
        drop(view);
        buffer.unmap();
        Ok((flight.step, data))
    }
}
