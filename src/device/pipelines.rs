//! Compute pipelines, each created once for a device.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cache::Cache;
use super::{Device, lock};
use crate::error::Result;
use crate::progress;

/// A kernel to compile: binding 0 is a uniform of at most 256 bytes, the others are writable storage.
pub struct PipelineSource<'a> {
    /// Name for reports; it need not be unique.
    pub name: &'a str,
    /// Identifies the WGSL source; with the constants it identifies the pipeline.
    pub key: String,
    /// Builds the complete WGSL source; called if the pipeline does not exist yet.
    pub wgsl: &'a (dyn Fn() -> String + Sync),
    /// Binding numbers of the storage buffers.
    pub slots: &'a [u32],
    /// Values of `override` constants.
    pub constants: &'a [(&'static str, f64)],
    /// For a kernel that a model wrote: its source and its accesses are checked.
    pub custom: Option<CustomSource>,
}

/// What is known of a kernel that a model wrote.
#[derive(Clone, Copy)]
pub struct CustomSource {
    /// Threads of a workgroup.
    pub workgroup: u32,
    /// The start of what was appended to the model's source.
    pub appended: &'static str,
}

type Key = (String, Vec<(&'static str, u64)>);

pub(super) struct Pipelines {
    checked: bool,
    layouts: Mutex<BTreeMap<Vec<u32>, wgpu::BindGroupLayout>>,
    compiled: Mutex<BTreeMap<Key, wgpu::ComputePipeline>>,
    cache: Option<Cache>,
}

impl Pipelines {
    pub(super) fn new(checked: bool, cache: Option<Cache>) -> Self {
        Self { checked, layouts: Mutex::default(), compiled: Mutex::default(), cache }
    }
}

impl PipelineSource<'_> {
    fn key(&self) -> Key {
        let bits = self.constants.iter().map(|(name, value)| (*name, value.to_bits())).collect();
        (self.key.clone(), bits)
    }
}

/// Maximum number of threads that compile at once.
const MOST_THREADS: usize = 8;

impl Device {
    /// Returns the layout of a bind group with `Params` at binding 0 and storage at `slots`.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn bind_group_layout(&self, slots: &[u32]) -> wgpu::BindGroupLayout {
        let mut layouts = lock(&self.shared.pipelines.layouts);
        let create = || {
            let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
                count: None,
            };
            // All storage is writable: one dispatch may not bind a buffer both read-only and writable, even
            // at different offsets.
            let storage = wgpu::BufferBindingType::Storage { read_only: false };
            let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform)];
            entries.extend(slots.iter().map(|&slot| entry(slot, storage)));
            let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
            self.wgpu_device().create_bind_group_layout(&descriptor)
        };
        layouts.entry(slots.to_vec()).or_insert_with(create).clone()
    }

    /// Returns the pipeline for a kernel, compiled at the first call.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) with the compiler's message, [`Error::Kernel`](crate::Error::Kernel) for a
    /// kernel that a model wrote.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn pipeline(&self, source: &PipelineSource) -> Result<wgpu::ComputePipeline> {
        let key = source.key();
        if let Some(pipeline) = lock(&self.shared.pipelines.compiled).get(&key) {
            return Ok(pipeline.clone());
        }
        let pipeline = self.compile(source)?;
        lock(&self.shared.pipelines.compiled).insert(key, pipeline.clone());
        Ok(pipeline)
    }

    /// Compiles those pipelines that do not exist yet, on up to 8 threads, and saves them for the next
    /// process if that is enabled ([`DeviceOptions::cache`](super::DeviceOptions::cache)).
    ///
    /// # Errors
    /// As [`Device::pipeline`], for the first that fails.
    pub(crate) fn prepare(&self, sources: &[PipelineSource]) -> Result<()> {
        self.alive()?;
        let mut missing: BTreeMap<Key, &PipelineSource> = sources.iter().map(|s| (s.key(), s)).collect();
        missing.retain(|key, _| !lock(&self.shared.pipelines.compiled).contains_key(key));
        if missing.is_empty() {
            return Ok(());
        }
        let missing: Vec<&PipelineSource> = missing.into_values().collect();
        let task = progress::task("kernels", missing.len() as u64);
        let next = AtomicUsize::new(0);
        let work = |tell: &dyn Fn(u64)| -> Result<()> {
            while let Some(source) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.pipeline(source)?;
                tell(next.load(Ordering::Relaxed).min(missing.len()) as u64);
            }
            Ok(())
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(missing.len()).min(MOST_THREADS);
        let work = &work;
        std::thread::scope(|scope| {
            // The threads share one queue: what a thread that cannot be spawned would do is left to the others.
            let spawned =
                (1..threads).map(|_| std::thread::Builder::new().spawn_scoped(scope, move || work(&|_| ())));
            let others: Vec<_> = spawned.flatten().collect();
            let own = work(&|done| task.done(done));
            let results = others
                .into_iter()
                .map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            results.fold(own, |first, other| first.and(other))
        })?;
        if let Some(cache) = &self.shared.pipelines.cache {
            cache.save();
        }
        Ok(())
    }

    /// Returns the number of pipelines compiled so far. It does not grow while a session runs.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn pipelines(&self) -> usize {
        lock(&self.shared.pipelines.compiled).len()
    }

    fn compile(&self, source: &PipelineSource) -> Result<wgpu::ComputePipeline> {
        let device = self.wgpu_device();
        let wgsl = (source.wgsl)();
        #[cfg(not(target_arch = "wasm32"))]
        if let Some(custom) = source.custom {
            super::custom::check(source.name, &wgsl, source.slots, custom)?;
        }
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(source.name),
            source: wgpu::ShaderSource::Wgsl(Cow::Owned(wgsl)),
        };
        let module = if self.shared.pipelines.checked || source.custom.is_some() {
            device.create_shader_module(descriptor)
        } else {
            // SAFETY: kernels stay within the sizes in their `Params`, which lowering computes from shapes;
            // the test suite runs them all with checks as well.
            unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
        };
        let group = self.bind_group_layout(source.slots);
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(source.name),
            bind_group_layouts: &[Some(&group)],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(source.name),
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: source.constants,
                // Kernels of this crate write workgroup memory before they read it.
                zero_initialize_workgroup_memory: source.custom.is_some(),
            },
            cache: self.shared.pipelines.cache.as_ref().map(|cache| &cache.raw),
        });
        let what = format!("kernel `{}`", source.name);
        self.end(scope, |device, error| device.refused(what, error)).map(|()| pipeline)
    }
}
