//! Measures the memory bandwidth of the adapter by buffer copies.

use wgrad::Result;
use wgrad::device::Device;
use wgrad::limits::AdapterClass;

use super::timing::time;

/// Returns the bytes read and written per second when one buffer is copied to another.
pub fn bandwidth(device: &Device) -> Result<f64> {
    let bytes: u64 = match device.limits().class {
        AdapterClass::Cpu => 32 << 20,
        AdapterClass::Integrated | AdapterClass::Discrete => 256 << 20,
    };
    let bytes = bytes.min(device.limits().max_buffer);
    let buffer = |usage| {
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
        device.wgpu_device().create_buffer(&descriptor)
    };
    let (from, to) = (buffer(wgpu::BufferUsages::COPY_SRC), buffer(wgpu::BufferUsages::COPY_DST));
    let spent = time(device, |times| {
        let mut encoder = device.wgpu_device().create_command_encoder(&Default::default());
        for _ in 0..times {
            encoder.copy_buffer_to_buffer(&from, 0, &to, 0, bytes);
        }
        device.wgpu_queue().submit([encoder.finish()]);
        Ok(())
    })?;
    Ok(2.0 * bytes as f64 / spent.wall)
}
