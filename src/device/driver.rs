//! Memory of the adapter and of the driver's allocator, and the clock of the device.

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

/// Memory of an adapter, as its driver reports it for this process. On Vulkan that of all heaps that are local
/// to the device, on DirectX that of the local segment; Metal's figures are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterMemory {
    /// Bytes that there are; `None` where only a budget is reported.
    pub total: Option<u64>,
    /// Bytes that this process can use without slowing down or failing, what it uses already included; it
    /// changes with what other programs do. `None` where the driver has no such report
    /// (`VK_EXT_memory_budget` on Vulkan).
    pub budget: Option<u64>,
    /// Bytes that this process uses.
    pub used: Option<u64>,
}

impl fmt::Display for AdapterMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [(self.total, "in total"), (self.budget, "for this process"), (self.used, "used by it")];
        let parts = parts.into_iter().filter_map(|(bytes, what)| Some(format!("{} {what}", Bytes(bytes?))));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

impl AdapterMemory {
    /// Asks the driver.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn of(adapter: &wgpu::Adapter) -> Option<Self> {
        #[cfg(not(target_vendor = "apple"))]
        if let Some(memory) = vulkan_memory(adapter) {
            return Some(memory);
        }
        system_memory(adapter)
    }

    #[cfg(target_arch = "wasm32")]
    pub(super) fn of(_adapter: &wgpu::Adapter) -> Option<Self> {
        None
    }
}

/// Vulkan's `VkPhysicalDeviceMemoryBudgetPropertiesEXT`.
#[cfg(not(any(target_arch = "wasm32", target_vendor = "apple")))]
#[repr(C)]
struct BudgetProperties {
    s_type: u32,
    next: *mut std::ffi::c_void,
    budget: [u64; 16],
    usage: [u64; 16],
}

#[cfg(not(any(target_arch = "wasm32", target_vendor = "apple")))]
fn vulkan_memory(adapter: &wgpu::Adapter) -> Option<AdapterMemory> {
    const MEMORY_BUDGET_PROPERTIES: u32 = 1_000_237_000;
    const DEVICE_LOCAL: u32 = 1;
    let mut heaps = BudgetProperties {
        s_type: MEMORY_BUDGET_PROPERTIES,
        next: std::ptr::null_mut(),
        budget: [0; 16],
        usage: [0; 16],
    };
    // SAFETY: the adapter is only asked. wgpu needs Vulkan 1.1 or its extension for this function. The chain is
    // one structure as Vulkan declares it, which the driver knows, and both live until it has answered.
    let properties = unsafe {
        let hal = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let (instance, physical) = (hal.shared_instance().raw_instance(), hal.raw_physical_device());
        let extensions = instance.enumerate_device_extension_properties(physical).unwrap_or_default();
        let budgets = extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(c"VK_EXT_memory_budget"));
        let mut properties = Default::default();
        let ask = |properties: &mut _| instance.get_physical_device_memory_properties2(physical, properties);
        // Tells the type of the properties, which this crate cannot name.
        ask(&mut properties);
        if budgets {
            properties.p_next = (&raw mut heaps).cast();
            ask(&mut properties);
        }
        properties.memory_properties
    };
    let count = (properties.memory_heap_count as usize).min(16);
    let local: Vec<usize> =
        (0..count).filter(|&i| properties.memory_heaps[i].flags.as_raw() & DEVICE_LOCAL != 0).collect();
    let sum = |of: &dyn Fn(usize) -> u64| Some(local.iter().map(|&i| of(i)).sum::<u64>());
    let budget = sum(&|i| heaps.budget[i]).filter(|bytes| *bytes > 0);
    let used = sum(&|i| heaps.usage[i]).filter(|_| budget.is_some());
    Some(AdapterMemory { total: sum(&|i| properties.memory_heaps[i].size), budget, used })
}

/// DirectX's report of the local segment: dedicated memory, or the host's on integrated GPUs.
#[cfg(windows)]
fn system_memory(adapter: &wgpu::Adapter) -> Option<AdapterMemory> {
    // SAFETY: the adapter is only asked, and writes the structure that it is given.
    let info = unsafe {
        let hal = adapter.as_hal::<wgpu::hal::api::Dx12>()?;
        let mut info = Default::default();
        // The default of the group of segments is the local one.
        hal.raw_adapter().QueryVideoMemoryInfo(0, Default::default(), &raw mut info).ok()?;
        info
    };
    Some(AdapterMemory { total: None, budget: Some(info.Budget), used: Some(info.CurrentUsage) })
}

#[cfg(not(any(windows, target_arch = "wasm32")))]
fn system_memory(_adapter: &wgpu::Adapter) -> Option<AdapterMemory> {
    None
}

impl Device {
    /// Returns the memory that the driver reports for this process now; `None` if it reports nothing, and for a
    /// device of an app ([`Device::from_wgpu`]).
    pub fn adapter_memory(&self) -> Option<AdapterMemory> {
        AdapterMemory::of(self.shared.raw.as_ref()?)
    }

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
