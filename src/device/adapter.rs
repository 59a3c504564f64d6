//! Enumeration of adapters, their limits, and the choice of one.

use std::fmt;

use super::{AdapterMemory, maybe_async};
use crate::error::{Error, Result};
use crate::limits::{ALIGNMENT, AdapterClass, Cooperative, F16, KernelChoices, Limits, MAX_BINDING};
use crate::units::Bytes;

/// Which adapter to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// The best adapter: discrete before integrated before software.
    #[default]
    Best,
    /// A software adapter.
    Software,
    /// The first whose name contains this, ignoring case. `vulkan:nvidia` asks for a backend as well, `vulkan:`
    /// or `vulkan` for nothing else. Backends are `vulkan`, `metal`, `dx12` and, where an app enables wgpu's
    /// feature for it, `gl`.
    Named(String),
}

impl From<&str> for Select {
    /// `best` and `software` by these words, all else as [`Select::Named`].
    fn from(text: &str) -> Self {
        match text {
            "best" => Self::Best,
            "software" => Self::Software,
            name => Self::Named(name.to_owned()),
        }
    }
}

/// wgpu's names of its backends.
const BACKENDS: [&str; 4] = ["vulkan", "metal", "dx12", "gl"];

/// Splits a name into the backend that it starts with, if any, and the rest, both in lower case.
fn backend_and_name(text: &str) -> (Option<&'static str>, String) {
    let text = text.to_lowercase();
    let (first, rest) = text.split_once(':').unwrap_or((&text, ""));
    match BACKENDS.iter().find(|backend| **backend == first.trim()) {
        Some(backend) => (Some(backend), rest.trim().to_owned()),
        None => (None, text),
    }
}

/// Description of an adapter, as plain data.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// The driver's name for it.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`, …
    pub backend: String,
    /// `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub kind: &'static str,
    /// Driver and version.
    pub driver: String,
    /// Limits that plans must respect.
    pub limits: Limits,
    /// Smallest and largest subgroup size; 0 if subgroup operations are missing.
    pub subgroups: (u32, u32),
    /// Cooperative matrices that it offers and that were not switched off, for each size that its subgroups may
    /// have. Plans use them only after one proved correct, and faster: [`Device::target`](super::Device::target).
    pub cooperative: Vec<Cooperative>,
    /// Why kernels can use its cooperative matrices or not, in words.
    pub cooperative_reason: String,
    /// Memory that the driver reports; `None` if it does not.
    pub memory: Option<AdapterMemory>,
    /// Why it cannot be used; `None` if it can.
    pub unusable: Option<String>,
    /// Position in the order of preference; 0 is the best.
    pub rank: usize,
}

impl Adapter {
    /// Returns why wgrad would or would not choose it.
    pub fn reason(&self) -> String {
        match (&self.unusable, self.rank) {
            (Some(why), _) => format!("cannot be used: {why}"),
            (None, 0) => format!("chosen by default: the best {} adapter here", self.kind),
            (None, _) if self.kind == "software" => {
                "not chosen by default: another adapter comes before this software one".to_owned()
            }
            (None, _) => "not chosen by default: another adapter comes first".to_owned(),
        }
    }

    /// Returns the name, with its backend, that selects this adapter again: `vulkan:llvmpipe (LLVM 15.0.6, 256
    /// bits)`, for [`Select::Named`] and [`Device::by_name`](super::Device::by_name).
    pub fn selector(&self) -> String {
        format!("{}:{}", self.backend, self.name)
    }

    fn is_selected_by(&self, text: &str) -> bool {
        let (backend, name) = backend_and_name(text);
        backend.is_none_or(|backend| backend == self.backend) && self.name.to_lowercase().contains(&name)
    }

    pub(super) fn of_device(device: &wgpu::Device) -> Self {
        Self::new(&device.adapter_info(), &device.limits(), device.features(), true)
    }

    pub(super) fn new(
        info: &wgpu::AdapterInfo,
        limits: &wgpu::Limits,
        features: wgpu::Features,
        compute: bool,
    ) -> Self {
        let kind = match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete",
            wgpu::DeviceType::IntegratedGpu => "integrated",
            wgpu::DeviceType::VirtualGpu => "virtual",
            wgpu::DeviceType::Cpu => "software",
            wgpu::DeviceType::Other => "other",
        };
        let subgroups = if features.contains(wgpu::Features::SUBGROUP) {
            (info.subgroup_min_size, info.subgroup_max_size)
        } else {
            (0, 0)
        };
        let f16 = match (compute, features.contains(wgpu::Features::SHADER_F16)) {
            (false, _) => F16::None,
            (true, true) => F16::Native,
            (true, false) => F16::Packed,
        };
        // Enabled on Vulkan only: it was measured with lavapipe alone, and DirectX has a software adapter,
        // too.
        let vulkan = info.backend == wgpu::Backend::Vulkan;
        let class = class(info.device_type);
        let long_words = class.is_cpu() && vulkan && features.contains(wgpu::Features::SHADER_INT64);
        // Browsers often keep it to themselves.
        let name = if info.name.is_empty() { "unnamed GPU" } else { &info.name };
        let own = Limits {
            name: name.to_owned(),
            class,
            max_buffer: limits.max_buffer_size,
            max_binding: limits.max_storage_buffer_binding_size.min(MAX_BINDING) / 16 * 16,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_invocations: limits.max_compute_invocations_per_workgroup,
            max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_workgroups: limits.max_compute_workgroups_per_dimension,
            min_subgroup: subgroups.0,
            f16,
            kernels: KernelChoices { long_words, ..KernelChoices::default() },
        };
        let alignment = u64::from(limits.min_storage_buffer_offset_alignment);
        let unusable = if !compute {
            Some("it has no compute shaders".to_owned())
        } else if alignment > ALIGNMENT {
            Some(format!("it aligns storage to {alignment} bytes, plans to {ALIGNMENT}"))
        } else {
            own.lack().map(|lack| format!("it {lack}"))
        };
        Self {
            name: name.to_owned(),
            backend: info.backend.to_str().to_owned(),
            kind,
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            limits: own,
            subgroups,
            cooperative: Vec::new(),
            cooperative_reason: "the app opened the device: not asked for".to_owned(),
            memory: None,
            unusable,
            rank: 0,
        }
    }

    /// Returns the sort key: unusable adapters last; discrete before integrated before software; within a
    /// kind, wgpu's OpenGL backend last and lavapipe first.
    fn preference(&self) -> (bool, usize, bool, bool) {
        const KINDS: [&str; 5] = ["discrete", "integrated", "virtual", "other", "software"];
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(KINDS.len());
        (self.unusable.is_some(), kind, self.backend == "gl", !self.name.contains("llvmpipe"))
    }
}

/// Returns the class for which kernels are chosen. A virtual GPU is a card passed through or shared, as in
/// data centres. A device that does not report its kind, such as with OpenGL and in browsers, may be small:
/// tiles that are too small cost a large GPU less than tiles that are too large cost a small GPU.
fn class(kind: wgpu::DeviceType) -> AdapterClass {
    match kind {
        wgpu::DeviceType::Cpu => AdapterClass::Cpu,
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::Other => AdapterClass::Integrated,
        wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::VirtualGpu => AdapterClass::Discrete,
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, backend, kind, limits, .. } = self;
        let (f16, binding, buffer) = (limits.f16.name(), Bytes(limits.max_binding), Bytes(limits.max_buffer));
        write!(f, "{name} · {backend} · {kind} · f16 {f16} · binding ≤ {binding} · buffer ≤ {buffer}")
    }
}

/// Returns those of the available features that kernels and profiles use.
pub(super) fn wanted_features(available: wgpu::Features) -> wgpu::Features {
    use wgpu::Features;
    available & (Features::SUBGROUP | Features::SHADER_F16 | Features::TIMESTAMP_QUERY)
}

/// Returns the largest cooperative matrices that kernels can use: square ones, with factors in `f16` and sums
/// in `f32`. Kernels are made for one size of subgroups. wgpu cannot ask for one where the driver chooses; then
/// each is tried that kernels can use, and a kernel whose subgroups have another returns NaN.
///
/// # Errors
/// Why there are none.
fn offered(raw: &wgpu::Adapter, adapter: &Adapter) -> std::result::Result<Vec<Cooperative>, String> {
    use wgpu::CooperativeScalarType as Scalar;
    if !raw.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        return Err("the driver offers none".to_owned());
    }
    let shared = raw.limits().max_compute_workgroup_storage_size;
    if shared < COOPERATIVE_WORKGROUP_BYTES {
        let needed = Bytes(COOPERATIVE_WORKGROUP_BYTES.into());
        return Err(format!("workgroups share {}, kernels need {needed}", Bytes(shared.into())));
    }
    if adapter.limits.f16 != F16::Native {
        return Err("it has no f16 in shaders".to_owned());
    }
    let (smallest, largest) = adapter.subgroups;
    // Metal reports 4 to 64, RDNA 32 to 64: Apple's GPUs have 32, and drivers for RDNA prefer 32 for matrices.
    let sizes: Vec<u32> = [32, 64, 16, 8].into_iter().filter(|n| (smallest..=largest).contains(n)).collect();
    let all = raw.cooperative_matrix_properties();
    let sides = all.iter().filter_map(|p| {
        let square = p.m_size == p.n_size && p.n_size == p.k_size;
        let typed = (p.ab_type, p.cr_type) == (Scalar::F16, Scalar::F32);
        // A workgroup has at most 256 threads, and each loads at most eight vec4 of a tile.
        let fits = matches!(p.m_size, 8 | 16) && sizes.iter().any(|lanes| p.m_size <= *lanes);
        (square && typed && fits).then_some(p.m_size)
    });
    let side = sides.max().ok_or_else(|| {
        let shape = |p: &wgpu::CooperativeMatrixProperties| {
            let (factors, sums) = (format!("{:?}", p.ab_type), format!("{:?}", p.cr_type));
            let types = format!("{factors} to {sums}").to_lowercase();
            format!("{} × {} × {} {types}", p.m_size, p.n_size, p.k_size)
        };
        let mut shapes: Vec<String> = all.iter().map(shape).collect();
        shapes.dedup();
        let shapes = shapes.join(", ");
        format!("kernels need 8 × 8 or 16 × 16, f16 to f32, by 8 to 64 lanes; the driver offers {shapes} by {smallest} to {largest}")
    })?;
    Ok(sizes.into_iter().filter(|lanes| side <= *lanes).map(|lanes| Cooperative { side, lanes }).collect())
}

/// Workgroup memory of the largest kernel that uses cooperative matrices.
const COOPERATIVE_WORKGROUP_BYTES: u32 = 32_256;

/// Returns every adapter, best first.
#[maybe_async]
pub(super) async fn list() -> Vec<(wgpu::Adapter, Adapter)> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    #[cfg(not(target_family = "wasm"))]
    let found = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    // Browsers show one adapter: by default the one that saves power.
    #[cfg(target_family = "wasm")]
    let found = {
        let power_preference = wgpu::PowerPreference::HighPerformance;
        let options = wgpu::RequestAdapterOptions { power_preference, ..Default::default() };
        instance.request_adapter(&options).await
    };
    let describe = |raw: wgpu::Adapter| {
        let compute = raw.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS);
        let adapter = Adapter::new(&raw.get_info(), &raw.limits(), raw.features(), compute);
        let (cooperative, cooperative_reason) = match offered(&raw, &adapter) {
            Ok(matrices) => (matrices, "the driver offers them".to_owned()),
            Err(reason) => (Vec::new(), reason),
        };
        let memory = AdapterMemory::of(&raw);
        (raw, Adapter { cooperative, cooperative_reason, memory, ..adapter })
    };
    let mut all: Vec<_> = found.into_iter().map(describe).collect();
    all.sort_by_key(|(_, adapter)| adapter.preference());
    for (rank, (_, adapter)) in all.iter_mut().enumerate() {
        adapter.rank = rank;
    }
    all
}

/// Returns the first adapter that fits, or one of those like it: the next ones by their number, from the start again after
/// the last.
///
/// # Errors
/// [`Error::NoAdapter`] and [`Error::Unknown`], with the available adapters.
#[maybe_async]
pub(super) async fn choose(select: &Select, number: usize) -> Result<(wgpu::Adapter, Adapter)> {
    let all = list().await;
    let known: Vec<String> = all.iter().map(|(_, adapter)| adapter.selector()).collect();
    let fits = |adapter: &Adapter| match select {
        Select::Best => true,
        Select::Software => adapter.kind == "software",
        Select::Named(name) => adapter.is_selected_by(name),
    };
    let first = all.iter().position(|(_, adapter)| fits(adapter));
    let kind = |adapter: &Adapter| (adapter.selector(), adapter.driver.clone());
    let alike = first.map(|first| {
        let of_kind = |(_, adapter): &&(_, Adapter)| kind(adapter) == kind(&all[first].1);
        let alike = (first..).zip(&all[first..]).filter(|(_, other)| of_kind(other));
        let alike: Vec<usize> = alike.map(|(at, _)| at).collect();
        alike[number % alike.len()]
    });
    match alike.and_then(|at| all.into_iter().nth(at)) {
        Some((raw, adapter)) => match &adapter.unusable {
            None => Ok((raw, adapter)),
            Some(why) => Err(Error::NoAdapter(format!("`{}` cannot be used: {why}", adapter.name))),
        },
        None if known.is_empty() => Err(Error::NoAdapter(String::new())),
        None => match select {
            Select::Named(name) => Err(Error::Unknown { kind: "adapter", name: name.clone(), known }),
            _ => Err(Error::NoAdapter(format!("none of {} is a software adapter", known.join(", ")))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_by_backend_and_part() {
        let adapter = |name: &str, backend| {
            let info = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, backend);
            let info = wgpu::AdapterInfo { name: name.to_owned(), ..info };
            Adapter::new(&info, &wgpu::Limits::default(), wgpu::Features::empty(), true)
        };
        let [vulkan, dx12] = [wgpu::Backend::Vulkan, wgpu::Backend::Dx12]
            .map(|backend| adapter("NVIDIA GeForce RTX 4090", backend));
        for (text, by_vulkan, by_dx12) in [
            ("nvidia", true, true),
            ("vulkan:nvidia", true, false),
            ("DX12: GeForce", false, true),
            ("vulkan", true, false),
            ("dx12:", false, true),
            ("metal:nvidia", false, false),
            ("vulkan:radeon", false, false),
            ("", true, true),
        ] {
            let found = [&vulkan, &dx12].map(|adapter| adapter.is_selected_by(text));
            assert_eq!(found, [by_vulkan, by_dx12], "{text}");
        }
        for one in [&vulkan, &dx12] {
            let found = [&vulkan, &dx12].map(|other| other.is_selected_by(&one.selector()));
            assert_eq!(found, [&vulkan, &dx12].map(|other| other.backend == one.backend));
        }
        // A name may hold a colon.
        assert!(adapter("ANGLE (Mesa: x)", wgpu::Backend::Gl).is_selected_by("mesa: x"));
        let selects = ["best", "software", "vulkan:x"].map(Select::from);
        assert_eq!(selects, [Select::Best, Select::Software, Select::Named("vulkan:x".to_owned())]);
    }
}
