//! Commands recorded for the device, in one submit or in several.

use crate::device::Device;
use crate::error::{Error, Result};

/// Commands of one run. Most runs need one submit; a run needs several where the host has to read or write in
/// between.
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

    /// Submits what was recorded so far; recording continues in a new encoder.
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

/// Returns the error for a run that failed after an earlier submit of it succeeded. Such a run cannot be
/// repeated.
fn cut_short(error: &Error) -> Error {
    if let Error::DeviceLost(message) = error {
        return Error::DeviceLost(message.clone());
    }
    let message = format!("{error}; some parameters are a step ahead of others: load what was saved before");
    Error::Device { what: "to finish a step".to_owned(), message }
}
