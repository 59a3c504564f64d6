//! `gpu-allocator` without a GPU. Its strategy is private and its public allocators require a device, but a
//! Vulkan device is a table of functions. This table provides the four functions that the allocator calls,
//! and the memory that they return is only a number.

use std::ffi::{CStr, c_void};
use std::ptr;

use ash::vk::{self, Handle as _};
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationSizes, AllocatorDebugSettings, MemoryLocation};

use super::baselines::{Contender, GRANULE};

/// `gpu-allocator` with its default blocks of 256 MiB, or a separate block for larger requests.
pub struct GpuAllocator {
    inner: Allocator,
    blocks: Vec<Option<Allocation>>,
}

impl GpuAllocator {
    pub fn new(blocks: usize) -> Self {
        // SAFETY: every function that the allocator calls is in the table, with the signature that Vulkan
        // gives it; ash fills the others with functions that panic. No handle is ever dereferenced.
        let (instance, device) = unsafe {
            (
                ash::Instance::load_with(function, vk::Instance::from_raw(1)),
                ash::Device::load_with(function, vk::Device::from_raw(1)),
            )
        };
        let inner = Allocator::new(&AllocatorCreateDesc {
            instance,
            device,
            physical_device: vk::PhysicalDevice::from_raw(1),
            debug_settings: AllocatorDebugSettings::default(),
            buffer_device_address: false,
            allocation_sizes: AllocationSizes::default(),
        });
        let blocks = (0..blocks).map(|_| None).collect();
        Self { inner: inner.expect("a device of numbers refuses nothing"), blocks }
    }

    /// Returns the bytes of all its memory blocks.
    pub fn reserved(&self) -> u64 {
        self.inner.capacity()
    }
}

impl Contender for GpuAllocator {
    fn alloc(&mut self, id: usize, size: u64) -> bool {
        let requirements =
            vk::MemoryRequirements { size: size.max(1), alignment: GRANULE, memory_type_bits: 1 };
        let allocation = self.inner.allocate(&AllocationCreateDesc {
            name: "block",
            requirements,
            location: MemoryLocation::GpuOnly,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        });
        self.blocks[id] = allocation.ok();
        self.blocks[id].is_some()
    }

    fn free(&mut self, id: usize) {
        if let Some(block) = self.blocks[id].take() {
            self.inner.free(block).expect("live");
        }
    }
}

fn function(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"vkGetPhysicalDeviceProperties" => properties as *const c_void,
        b"vkGetPhysicalDeviceMemoryProperties" => memory_properties as *const c_void,
        b"vkAllocateMemory" => allocate as *const c_void,
        b"vkFreeMemory" => free as *const c_void,
        _ => ptr::null(),
    }
}

unsafe extern "system" fn properties(_: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceProperties) {
    let limits = vk::PhysicalDeviceLimits { buffer_image_granularity: 1, ..Default::default() };
    // SAFETY: Vulkan's caller passes a place to write to.
    unsafe { out.write(vk::PhysicalDeviceProperties { limits, ..Default::default() }) };
}

/// One device-local heap of unlimited size.
unsafe extern "system" fn memory_properties(
    _: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties,
) {
    let mut found = vk::PhysicalDeviceMemoryProperties {
        memory_type_count: 1,
        memory_heap_count: 1,
        ..Default::default()
    };
    found.memory_types[0].property_flags = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    found.memory_heaps[0].size = u64::MAX;
    // SAFETY: Vulkan's caller passes a place to write to.
    unsafe { out.write(found) };
}

unsafe extern "system" fn allocate(
    _: vk::Device,
    _: *const vk::MemoryAllocateInfo<'_>,
    _: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: Vulkan's caller passes a place to write to.
    unsafe { out.write(vk::DeviceMemory::from_raw(1)) };
    vk::Result::SUCCESS
}

unsafe extern "system" fn free(_: vk::Device, _: vk::DeviceMemory, _: *const vk::AllocationCallbacks<'_>) {}
