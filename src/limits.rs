//! Limits of an adapter as plain data, and cards, which times are modelled on. A plan is made for limits, not
//! for a device.

mod card;
mod products;

use std::fmt;

use crate::dtype::Precision;
use crate::units::Bytes;
pub use card::{CARDS, Card, Job, JobKind};
pub use products::{Products, ShapeClass};

/// Alignment of regions in bytes, equal on every adapter, so that plans do not depend on the adapter's
/// alignment. It is the largest `min_storage_buffer_offset_alignment` WebGPU permits.
pub const ALIGNMENT: u64 = 256;

/// Maximum iterations of all loops of a thread together on lavapipe: beyond it, lavapipe ends every loop
/// without an error. Kernels for software adapters stay within it for all shapes; an operation that cannot be
/// split accordingly is rejected.
pub const MAX_LOOP_ITERATIONS: u64 = 65_535;

/// Kernel family for an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdapterClass {
    /// Software adapters (lavapipe, SwiftShader, WARP): no barriers, no workgroup memory.
    Cpu,
    /// GPUs that share the host's memory, and GPUs of unknown type: tiles in workgroup memory.
    Integrated,
    /// GPUs with dedicated memory: larger tiles, for many more threads.
    Discrete,
}

impl AdapterClass {
    /// Whether this is the class of software adapters.
    pub const fn is_cpu(self) -> bool {
        matches!(self, Self::Cpu)
    }
}

/// Support for 16-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum F16 {
    /// `SHADER_F16`: WGSL's `f16` type.
    Native,
    /// Pairs packed in a `u32`, converted with integer arithmetic: works on every adapter with compute
    /// shaders.
    Packed,
    /// Not supported: there are no compute shaders.
    None,
}

impl F16 {
    /// Returns the lower-case name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Packed => "packed",
            Self::None => "none",
        }
    }
}

/// Cooperative matrices (tensor cores): square matrices that the lanes of a subgroup hold and multiply
/// jointly, with factors in `f16` and sums in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cooperative {
    /// Rows and columns of a matrix: 8 or 16.
    pub side: u32,
    /// Lanes of every subgroup.
    pub lanes: u32,
}

impl fmt::Display for Cooperative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, lanes } = self;
        write!(f, "{side} × {side}, f16 to f32, by {lanes} lanes")
    }
}

/// Choices of kernels for a target: by preset or adapter, and by trials on it ([`Device::target`],
/// [`exec::tune`](crate::exec::tune)). They change how fast a step is and, with cooperative matrices or
/// other variants of products, in which order it sums.
///
/// [`Device::target`]: crate::device::Device::target
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelChoices {
    /// Whether `vec4<f32>` kernels, except matrix products, convolutions and attention, access memory in
    /// 64-bit words, which is faster than 32-bit words on software adapters. Needs
    /// [`SHADER_INT64`](https://docs.rs/wgpu/30/wgpu/struct.Features.html) and Vulkan.
    pub long_words: bool,
    /// Cooperative matrices that matrix products and convolutions may use. Only steps with [`Precision::F16`]
    /// use them, because they round factors to `f16`. `None` in every preset, and for an adapter until trials
    /// find them correct and faster on it: [`Device::target`](crate::device::Device::target).
    pub cooperative: Option<Cooperative>,
    /// Whether convolutions use cooperative matrices too; `false` if only matrix products are faster with
    /// them.
    pub cooperative_convolutions: bool,
    /// Kernel variants that matrix products and convolutions use where they can, by the class of their shape.
    pub products: Products,
}

impl Default for KernelChoices {
    /// 32-bit words, no cooperative matrices, products by class and sizes.
    fn default() -> Self {
        let products = Products::default();
        Self { long_words: false, cooperative: None, cooperative_convolutions: true, products }
    }
}

/// What a plan is made for: facts about an adapter, and the choices of kernels. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Name in reports: that of a preset or of the adapter.
    pub name: String,
    /// Kernel family.
    pub class: AdapterClass,
    /// Largest buffer that can be created.
    pub max_buffer: u64,
    /// Largest part of a buffer that one binding can cover: no tensor may be larger.
    pub max_binding: u64,
    /// Storage buffers per shader stage.
    pub max_storage_buffers: u32,
    /// Threads in one workgroup.
    pub max_invocations: u32,
    /// Bytes of memory that the threads of one workgroup share.
    pub max_workgroup_bytes: u32,
    /// Workgroups along one dimension of a dispatch.
    pub max_workgroups: u32,
    /// Minimum subgroup size that kernels may assume; 0 without subgroup operations.
    pub min_subgroup: u32,
    /// Support for 16-bit floats.
    pub f16: F16,
    /// Choices among the kernels that these facts allow.
    pub kernels: KernelChoices,
}

const TWO_GIB_LESS_ONE: u64 = (1 << 31) - 1;

/// Largest binding on any adapter. wgpu allows no larger ones on Vulkan and DirectX; on Metal, where it does,
/// kernels are not tested beyond it.
#[cfg(feature = "gpu")]
pub(crate) const MAX_BINDING: u64 = TWO_GIB_LESS_ONE;

impl Limits {
    /// The names that [`Limits::named`] knows.
    pub const NAMES: [&'static str; 9] =
        ["discrete", "webgpu", "lavapipe", "swiftshader", "nvidia", "rdna", "arc", "steam-deck", "apple"];

    /// Returns a preset by name; `None` if it is not one of [`Limits::NAMES`].
    ///
    /// - `discrete`: Vulkan on Linux; bindings and buffers of 2 GiB − 1, and 8 storage buffers,
    ///   the minimum of all presets.
    /// - `webgpu`: the default limits that every browser guarantees, on an integrated GPU.
    /// - `lavapipe`: Mesa's software adapter. `swiftshader`: Chromium's.
    /// - `nvidia`: NVIDIA's Vulkan driver; bindings of 2 GiB − 1, buffers of 4 GiB − 2 MiB.
    /// - `rdna`: AMD's cards since RDNA, with Mesa's RADV. `steam-deck`: the same driver, integrated.
    /// - `arc`: Intel's cards, with Mesa's ANV.
    /// - `apple`: Apple silicon with 8 GB of memory, on Metal; a buffer may have half of the memory.
    ///
    /// Presets of GPUs have no subgroups: kernels for GPUs use none.
    ///
    /// wgpu allows buffers of `min(maxBufferSize, maxMemoryAllocationSize)` on Vulkan, but 2 GiB − 1 on Linux
    /// with all drivers except NVIDIA's, and bindings of 2 GiB − 1
    /// ([wgpu-hal 30](https://docs.rs/wgpu-hal/30.0.1/src/wgpu_hal/vulkan/adapter.rs.html)).
    pub fn named(name: &str) -> Option<Self> {
        let discrete = Self {
            name: name.to_owned(),
            class: AdapterClass::Discrete,
            max_buffer: TWO_GIB_LESS_ONE,
            max_binding: TWO_GIB_LESS_ONE,
            max_storage_buffers: 8,
            max_invocations: 256,
            max_workgroup_bytes: 32 << 10,
            max_workgroups: 65_535,
            min_subgroup: 0,
            f16: F16::Native,
            kernels: KernelChoices::default(),
        };
        let (mib_128, mib_256) = (128 << 20, 256 << 20);
        Some(match name {
            "discrete" => discrete,
            "webgpu" => Self {
                class: AdapterClass::Integrated,
                max_buffer: mib_256,
                max_binding: mib_128,
                max_workgroup_bytes: 16 << 10,
                f16: F16::Packed,
                ..discrete
            },
            "lavapipe" => Self {
                class: AdapterClass::Cpu,
                max_binding: mib_128,
                max_storage_buffers: 32,
                min_subgroup: 8,
                kernels: KernelChoices { long_words: true, ..KernelChoices::default() },
                ..discrete
            },
            "swiftshader" => Self {
                class: AdapterClass::Cpu,
                max_buffer: 1 << 30,
                max_binding: 1 << 30,
                max_storage_buffers: 10,
                min_subgroup: 4,
                f16: F16::Packed,
                ..discrete
            },
            // vulkan.gpuinfo.org, drivers since 525: maxMemoryAllocationSize 0xFFE00000,
            // maxComputeSharedMemorySize 49,152, maxComputeWorkGroupInvocations 1,024, subgroups of 32.
            // wgpu halves maxDescriptorSetStorageBuffers, 1,048,576, for two stages.
            "nvidia" => Self {
                max_buffer: (4 << 30) - (2 << 20),
                max_storage_buffers: 1 << 19,
                max_invocations: 1024,
                max_workgroup_bytes: 48 << 10,
                ..discrete
            },
            // Mesa's radv_physical_device.c: 64 KiB of shared memory since GFX7. Of the 2^31 / 96 descriptors of
            // a set wgpu leaves storage buffers more than 2^20.
            "rdna" | "steam-deck" => Self {
                class: if name == "rdna" { AdapterClass::Discrete } else { AdapterClass::Integrated },
                max_storage_buffers: 1 << 20,
                max_invocations: 1024,
                max_workgroup_bytes: 64 << 10,
                ..discrete
            },
            // Mesa's anv_physical_device.c: 64 KiB of shared memory. Sets of 1,024 descriptors, which wgpu
            // divides among five kinds of them and two stages.
            "arc" => Self {
                max_storage_buffers: 102,
                max_invocations: 1024,
                max_workgroup_bytes: 64 << 10,
                ..discrete
            },
            // Metal Feature Set Tables, Apple7 and later: 32 KiB of threadgroup memory, 1,024 threads, 31
            // buffers, of which wgpu keeps two. `maxBufferLength` is 4 GiB with 8 GB (llama.cpp PR 1706).
            "apple" => Self {
                class: AdapterClass::Integrated,
                max_buffer: 4 << 30,
                max_storage_buffers: 29,
                max_invocations: 1024,
                ..discrete
            },
            _ => return None,
        })
    }
}

impl Limits {
    /// Returns the limits without features that would change results in this precision.
    pub(crate) fn within(&self, precision: Precision) -> Self {
        self.choosing(|kernels| {
            kernels.cooperative = kernels.cooperative.filter(|_| precision == Precision::F16);
        })
    }

    /// Describes the first limit that is too small for any plan, with the smallest value that does.
    pub(crate) fn lack(&self) -> Option<String> {
        let least = [
            (self.max_storage_buffers, "storage buffers per stage", 8),
            (self.max_invocations, "threads per workgroup", 256),
            (self.max_workgroups, "workgroups per dimension", 65_535),
        ];
        let (has, what, needs) = least.into_iter().find(|(has, _, needs)| has < needs)?;
        Some(format!("has {has} {what}, wgrad needs {needs}"))
    }

    /// Returns the same limits with other choices of kernels.
    #[must_use]
    pub fn choosing(&self, change: impl FnOnce(&mut KernelChoices)) -> Self {
        let mut limits = self.clone();
        change(&mut limits.kernels);
        limits
    }
}

impl Default for Limits {
    /// The `discrete` preset.
    fn default() -> Self {
        Self::named("discrete").expect("`discrete` is one of NAMES")
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: binding ≤ {}, buffer ≤ {}", self.name, Bytes(self.max_binding), Bytes(self.max_buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_listed_names_are_known() {
        for name in Limits::NAMES {
            assert_eq!(Limits::named(name).map(|l| l.name).as_deref(), Some(name));
        }
        assert_eq!(Limits::named("voodoo"), None);
    }
}
