//! Statistics of the driver's allocator, and the clock of the device.

use std::fmt;

use super::Device;
use crate::units::Bytes;

/// Bytes that wgpu's allocator holds for a device, for all its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverMemory {
    /// Bytes of live buffers and textures.
    pub allocated: u64,
    /// Bytes of the blocks taken from the driver, which contain the buffers and textures. The size of blocks
    /// depends on the memory hints with which the device was [opened](super::descriptor).
    pub reserved: u64,
}

impl fmt::Display for DriverMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver: {} allocated, {} reserved", Bytes(self.allocated), Bytes(self.reserved))
    }
}

impl Device {
    /// Returns what the driver's allocator holds; `None` if it does not report it.
    pub fn driver_memory(&self) -> Option<DriverMemory> {
        let report = self.wgpu_device().generate_allocator_report()?;
        Some(DriverMemory { allocated: report.total_allocated_bytes, reserved: report.total_reserved_bytes })
    }

    /// Returns the nanoseconds of one tick of the device's clock; `None` if passes cannot be timed.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn timestamp_period(&self) -> Option<f32> {
        let timed = self.wgpu_device().features().contains(wgpu::Features::TIMESTAMP_QUERY);
        timed.then(|| self.wgpu_queue().get_timestamp_period())
    }
}
