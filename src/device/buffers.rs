//! Buffer creation: a device that is out of memory is an error, not a panic.

use super::Device;
use super::budget::Buffer;
use crate::error::{Error, Result};

impl Device {
    /// Creates a buffer of exactly `bytes` bytes. `created` is the number of bytes that the caller has
    /// created before, for the error.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device, or [its budget](Device::set_budget), has too little memory left;
    /// [`Error::Device`] if the device refuses for another reason.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
        mapped: bool,
        created: u64,
    ) -> Result<Buffer> {
        self.alive()?;
        let name = label.to_owned();
        let refuse =
            move |message: String| Error::OutOfMemory { name, bytes, created, holds: String::new(), message };
        let claim = self.shared.budget.claim(bytes).map_err(refuse.clone())?;
        let device = self.wgpu_device();
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let descriptor =
            wgpu::BufferDescriptor { label: Some(label), size: bytes, usage, mapped_at_creation: mapped };
        let buffer = device.create_buffer(&descriptor);
        let what = format!("buffer `{label}`");
        let refused = self.end(validation, |device, error| device.refused(what, error));
        self.end(memory, |_, error| refuse(error.to_string()))?;
        refused.map(|()| Buffer::new(buffer, claim))
    }
}
