//! What an adapter allows, as plain data: a plan is made for limits, not for a device.

use std::fmt;

use crate::dtype::Precision;
use crate::units::Bytes;

/// Regions start at multiples of this many bytes on every adapter, so that a plan is the same everywhere.
/// It is the largest `min_storage_buffer_offset_alignment` WebGPU permits.
pub const ALIGNMENT: u64 = 256;

/// Iterations that lavapipe gives to all loops of a thread together: after them it ends every loop without an error. No kernel
/// for software adapters iterates more, whatever the shapes; what cannot be cut into parts is refused.
pub const MAX_LOOP_ITERATIONS: u64 = 65_535;

/// Which family of kernels runs well on an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdapterClass {
    /// Software adapters (lavapipe, SwiftShader, WARP): no barriers, no workgroup memory.
    Cpu,
    /// GPUs that share the host's memory, and those that nothing is known of: tiles in workgroup memory.
    Integrated,
    /// Cards with memory of their own: larger tiles, for many more threads.
    Discrete,
}

impl AdapterClass {
    /// Whether it is a software adapter.
    pub const fn is_cpu(self) -> bool {
        matches!(self, Self::Cpu)
    }
}

/// How 16-bit floats can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum F16 {
    /// `SHADER_F16`: WGSL's `f16` type.
    Native,
    /// Pairs packed in a `u32`, converted by integer code: works wherever compute shaders do.
    Packed,
    /// Not at all: there are no compute shaders.
    None,
}

impl F16 {
    /// The lower-case name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Packed => "packed",
            Self::None => "none",
        }
    }
}

/// Square matrices that the lanes of a subgroup hold together and multiply at once, with factors in `f16` and sums in `f32`:
/// tensor cores.
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

/// Limits a plan must keep to. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Name for reports: a preset's, or the adapter's.
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
    /// Smallest subgroup that kernels may count on; 0 where subgroup operations are missing.
    pub min_subgroup: u32,
    /// How 16-bit floats can be held.
    pub f16: F16,
    /// Whether kernels in fours of `f32`, but for products, convolutions and attention, go through memory in words of 64 bits,
    /// which costs software adapters less than words of 32. Needs
    /// [`SHADER_INT64`](https://docs.rs/wgpu/30/wgpu/struct.Features.html), on Vulkan.
    pub long_words: bool,
    /// Cooperative matrices that matrix products and convolutions may use. It rounds their factors to `f16`, so that steps do
    /// with [`Precision::F16`] alone. `None` in every preset and for every adapter until they proved right and faster there:
    /// [`exec::limits_for`](crate::exec::limits_for).
    pub cooperative: Option<Cooperative>,
    /// Whether convolutions use them too, where there are any: `false` where only products proved faster by them.
    pub cooperative_convolutions: bool,
    /// The way to compute matrix products and convolutions wherever it can: the name of one of
    /// [`products::ROWS`](crate::lower::products::ROWS), [`cooperative::BLOCKS`](crate::lower::cooperative::BLOCKS) or, for
    /// convolutions, [`conv::ROWS`](crate::lower::conv::ROWS), where names that two tables have mean the same tiles. A table
    /// that does not know the name, as with `None`, chooses by class and sizes.
    pub product: Option<&'static str>,
}

const TWO_GIB_LESS_ONE: u64 = (1 << 31) - 1;

impl Limits {
    /// The names that [`Limits::named`] knows.
    pub const NAMES: [&'static str; 5] = ["discrete", "webgpu", "lavapipe", "swiftshader", "nvidia"];

    /// A preset by name; `None` if it is not one of [`Limits::NAMES`].
    ///
    /// - `discrete`: Vulkan on Linux; bindings and buffers of 2 GiB − 1, and as few storage buffers as anywhere.
    /// - `webgpu`: the defaults that every browser guarantees, as an integrated GPU has them.
    /// - `lavapipe`: Mesa's software adapter. `swiftshader`: Chromium's.
    /// - `nvidia`: NVIDIA's Vulkan driver; bindings of 2 GiB − 1, buffers as large as the card.
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
            long_words: false,
            cooperative: None,
            cooperative_convolutions: true,
            product: None,
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
                long_words: true,
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
            "nvidia" => Self { max_buffer: 1 << 52, max_storage_buffers: 1 << 20, ..discrete },
            _ => return None,
        })
    }
}

impl Limits {
    /// The same, without what changes results in this precision.
    pub(crate) fn within(&self, precision: Precision) -> Self {
        let cooperative = self.cooperative.filter(|_| precision == Precision::F16);
        Self { cooperative, ..self.clone() }
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
