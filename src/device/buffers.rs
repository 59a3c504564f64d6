//! Creating buffers: a device that is out of memory is an error, not a panic.

use super::Device;
use crate::error::{Error, Result};

impl Device {
    /// Creates a buffer of exactly `bytes` bytes. `created` is what the caller has created before, for the error.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device says that it has no more; [`Error::Device`] if it refuses otherwise.
    pub fn buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
        mapped: bool,
        created: u64,
    ) -> Result<wgpu::Buffer> {
        let device = self.wgpu_device();
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let descriptor =
            wgpu::BufferDescriptor { label: Some(label), size: bytes, usage, mapped_at_creation: mapped };
        let buffer = device.create_buffer(&descriptor);
        let refused = pollster::block_on(validation.pop());
        if let Some(error) = pollster::block_on(memory.pop()) {
            return Err(Error::OutOfMemory {
                name: label.to_owned(),
                bytes,
                created,
                message: error.to_string(),
            });
        }
        match refused {
            Some(error) => {
                Err(Error::Device { what: format!("buffer `{label}`"), message: error.to_string() })
            }
            None => Ok(buffer),
        }
    }
}
