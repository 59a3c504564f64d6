//! Transfer of parameters to and from the device, in pieces through two small buffers.

use super::ledger::{Ledger, Purpose};
use crate::device::{Buffer, Device};
use crate::error::{Error, Result};
use crate::maybe_async;

/// A place in an arena.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) buffer: &'a wgpu::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Two buffers of equal size, one for each direction.
pub(super) struct Transfer {
    up: Buffer,
    up_mapped: bool,
    down: Buffer,
    piece: u64,
}

impl Transfer {
    pub(super) fn new(bytes: u64, ledger: &mut Ledger) -> Result<Self> {
        let up = ledger.create("upload", bytes, Purpose::Upload)?;
        let down = ledger.create("download", bytes, Purpose::Download)?;
        Ok(Self { up, up_mapped: true, down, piece: bytes })
    }

    /// Returns the two buffers.
    pub(super) fn buffers(&self) -> [&Buffer; 2] {
        [&self.up, &self.down]
    }

    /// Fills places, one after the other, with what `data` returns for each range of their four-byte elements.
    #[maybe_async]
    pub(super) async fn upload<T: bytemuck::Pod>(
        &mut self,
        ledger: &Ledger,
        places: &[Place<'_>],
        mut data: impl FnMut(std::ops::Range<u64>) -> Vec<T>,
    ) -> Result<()> {
        const { assert!(size_of::<T>() == 4) };
        let device = &ledger.device;
        let mut done = 0;
        for Place { buffer, offset, bytes } in cut(places, self.piece) {
            if !self.up_mapped {
                device.map(&self.up, wgpu::MapMode::Write, .., None).wait(device).await?;
            }
            let piece = data(done / 4..(done + bytes) / 4);
            let mut view = self.up.get_mapped_range_mut(..bytes).map_err(|e| failed(device, &e))?;
            view.copy_from_slice(bytemuck::cast_slice(&piece));
            drop(view);
            self.up.unmap();
            self.up_mapped = false;
            let mut encoder = encoder(ledger);
            encoder.copy_buffer_to_buffer(&self.up, 0, buffer, offset, bytes);
            device.submit(encoder)?;
            done += bytes;
        }
        Ok(())
    }

    /// Waits for everything submitted so far and reads places, one after the other.
    #[maybe_async]
    pub(super) async fn download<T: bytemuck::Pod>(
        &mut self,
        ledger: &Ledger,
        places: &[Place<'_>],
    ) -> Result<Vec<T>> {
        let device = &ledger.device;
        let mut all = Vec::new();
        for Place { buffer, offset, bytes } in cut(places, self.piece) {
            let mut encoder = encoder(ledger);
            encoder.copy_buffer_to_buffer(buffer, offset, &self.down, 0, bytes);
            device.submit(encoder)?;
            device.map(&self.down, wgpu::MapMode::Read, ..bytes, None).wait(device).await?;
            let view = self.down.get_mapped_range(..bytes).map_err(|e| failed(device, &e))?;
            all.extend(bytemuck::pod_collect_to_vec::<u8, T>(&view));
            drop(view);
            self.down.unmap();
        }
        Ok(all)
    }
}

/// Cuts places into ranges of at most `most` bytes.
fn cut<'a>(places: &[Place<'a>], most: u64) -> impl Iterator<Item = Place<'a>> {
    places.iter().flat_map(move |&Place { buffer, offset, bytes }| {
        let starts = (0..bytes).step_by(most as usize);
        starts.map(move |start| Place { buffer, offset: offset + start, bytes: most.min(bytes - start) })
    })
}

fn encoder(ledger: &Ledger) -> wgpu::CommandEncoder {
    ledger.device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

fn failed(device: &Device, error: &dyn std::fmt::Display) -> Error {
    device.refused("to move parameters", error)
}
