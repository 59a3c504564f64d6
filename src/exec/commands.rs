//! Commands recorded for the device, in one submit or in several.

use crate::device::Device;
use crate::error::{Error, Result};

/// Commands of one run. Most runs need one submit; a run needs several where the host has to read or write in
/// between, and where one would take too long.
pub(super) struct Commands {
    device: Device,
    encoder: wgpu::CommandEncoder,
    /// Whether what was submitted changed state, so that the run cannot be repeated.
    pub(super) changed: bool,
}

impl Commands {
    pub(super) fn new(device: &Device) -> Self {
        Self { device: device.clone(), encoder: encoder(device), changed: false }
    }

    pub(super) fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        &mut self.encoder
    }

    /// Submits what was recorded so far, which counts as a change of state; recording continues in a new
    /// encoder.
    pub(super) fn submit(&mut self) -> Result<wgpu::SubmissionIndex> {
        let recorded = std::mem::replace(&mut self.encoder, encoder(&self.device));
        let submitted = self.device.submit(recorded);
        let changed = std::mem::replace(&mut self.changed, true);
        submitted.map_err(|error| if changed { cut_short(&error) } else { error })
    }
}

fn encoder(device: &Device) -> wgpu::CommandEncoder {
    device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

/// Returns the error for a run that failed after an earlier submit of it changed state. Such a run cannot be
/// repeated.
fn cut_short(error: &Error) -> Error {
    if let Error::DeviceLost(message) = error {
        return Error::DeviceLost(message.clone());
    }
    let message = format!("{error}; some parameters are a step ahead of others: load what was saved before");
    Error::Device { what: "to finish a step".to_owned(), message }
}
