//! What this crate asks of wgpu for a device, its own or an app's.

use super::adapter::{Adapter, wanted_features};

/// Bytes of the blocks in which small buffers lie. For memory that the host sees wgpu takes half of it, and nowhere less than
/// 4 MiB.
const BLOCK: u64 = 4 << 20;

/// How to open a device for this crate: the features that its kernels and profiles use, where the adapter has them, all of the
/// adapter's limits, and memory hints that suit a few large buffers. [`Device::open`](super::Device::open) opens with it; an
/// app that opens its own device for [`Device::from_wgpu`](super::Device::from_wgpu) changes what it needs:
///
/// ```no_run
/// # fn open(adapter: &wgpu::Adapter) -> Result<(), wgpu::RequestDeviceError> {
/// let mut descriptor = wgrad::device::descriptor(adapter);
/// descriptor.required_features |= wgpu::Features::TEXTURE_COMPRESSION_BC;
/// let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
/// # Ok(())
/// # }
/// ```
///
/// wgpu takes blocks of memory from the driver and puts buffers into them; one that is larger than a block has a block of its own
/// size. By default the first blocks of wgpu are 128 MiB of memory that the host does not see and 64 MiB of each kind that it
/// sees, and a session fills little of them: it has a few large buffers and some small ones. With the hints of this descriptor
/// every block has 4 MiB, the least that wgpu takes. [`Device::driver_memory`](super::Device::driver_memory) tells what is reserved.
///
/// Cooperative matrices are not in it: they are an experimental feature of wgpu, which an app must allow itself.
pub fn descriptor(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
    let available = adapter.features();
    let mut required_features = wanted_features(available);
    if Adapter::new(&adapter.get_info(), &adapter.limits(), available, true).limits.long_words {
        required_features |= wgpu::Features::SHADER_INT64;
    }
    wgpu::DeviceDescriptor {
        label: Some("wgrad"),
        required_features,
        required_limits: adapter.limits(),
        memory_hints: wgpu::MemoryHints::Manual { suballocated_device_memory_block_size: BLOCK..BLOCK },
        ..Default::default()
    }
}
