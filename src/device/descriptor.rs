//! The device descriptor that this crate requests from wgpu, for its own device or an app's.

use super::adapter::{Adapter, wanted_features};

/// Bytes of the blocks from which small buffers are allocated. For host-visible memory wgpu uses half of it,
/// but never less than 4 MiB.
const BLOCK: u64 = 4 << 20;

/// Returns the descriptor for opening a device for this crate: the features that its kernels and profiles
/// use, where the adapter has them, all of the adapter's limits, and memory hints suited to a few large
/// buffers. [`Device::open`](super::Device::open) uses it. An app that opens its own device for
/// [`Device::from_wgpu`](super::Device::from_wgpu) changes what it needs:
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
/// wgpu takes blocks of memory from the driver and places buffers in them; a buffer that is larger than a
/// block gets a block of its own size. By default wgpu's first blocks are 128 MiB of device-local memory and
/// 64 MiB of each kind of host-visible memory. A session fills little of them: it has a few large buffers and
/// some small ones. With the hints of this descriptor every block has 4 MiB, the minimum that wgpu accepts.
/// [`Device::driver_memory`](super::Device::driver_memory) returns what is reserved.
///
/// Cooperative matrices are not included: they are an experimental feature of wgpu, which an app must enable
/// itself.
pub fn descriptor(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
    let available = adapter.features();
    let mut required_features = wanted_features(available);
    if Adapter::new(&adapter.get_info(), &adapter.limits(), available, true).limits.kernels.long_words {
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
