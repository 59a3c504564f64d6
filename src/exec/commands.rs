//! What is recorded for the device, in one submit or in several.

use crate::device::Device;
use crate::error::{Error, Result};

/// Commands of one run. Most runs are one submit; where the host has to read or write in between, several.
pub(super) struct Commands {
    device: Device,
    encoder: wgpu::CommandEncoder,
    submits: usize,
}

impl Commands {
    pub(super) fn new(device: &Device) -> Self {
        Self { device: device.clone(), encoder: encoder(device), submits: 0 }
    }

    pub(super) fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        &mut self.encoder
    }

    /// Submits what was recorded so far; recording goes on.
    pub(super) fn submit(&mut self) -> Result<wgpu::SubmissionIndex> {
        let recorded = std::mem::replace(&mut self.encoder, encoder(&self.device));
        let submitted = self.device.submit(recorded);
        let before = self.submits;
        self.submits += 1;
        submitted.map_err(|error| if before == 0 { error } else { cut_short(&error) })
    }
}

fn encoder(device: &Device) -> wgpu::CommandEncoder {
    device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

/// A run of which a part was done cannot be made again.
fn cut_short(error: &Error) -> Error {
    let message = format!("{error}; some parameters are a step ahead of others: load what was saved before");
    Error::Device { what: "to finish a step".to_owned(), message }
}
