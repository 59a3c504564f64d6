//! What the driver's allocator says, and clocks of the device.

use std::fmt;

use super::Device;
use crate::units::Bytes;

/// Bytes that wgpu's allocator holds for a device, for every user of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverMemory {
    /// Bytes of buffers and textures that are alive.
    pub allocated: u64,
    /// Bytes of the blocks taken from the driver, in which those lie: how large blocks are is by the memory hints with which
    /// the device was [opened](super::descriptor).
    pub reserved: u64,
}

impl fmt::Display for DriverMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver: {} allocated, {} reserved", Bytes(self.allocated), Bytes(self.reserved))
    }
}

impl Device {
    /// What the driver's allocator holds; `None` where it does not tell.
    pub fn driver_memory(&self) -> Option<DriverMemory> {
        let report = self.wgpu_device().generate_allocator_report()?;
        Some(DriverMemory { allocated: report.total_allocated_bytes, reserved: report.total_reserved_bytes })
    }

    /// Nanoseconds of one tick of the device's clock; `None` where passes cannot be timed.
    pub fn timestamp_period(&self) -> Option<f32> {
        let timed = self.wgpu_device().features().contains(wgpu::Features::TIMESTAMP_QUERY);
        timed.then(|| self.wgpu_queue().get_timestamp_period())
    }
}
