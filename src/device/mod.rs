//! The GPU: choosing an adapter, opening it, buffers and pipelines. Nothing here depends on graphs, plans or
//! kernels.

mod adapter;
mod budget;
mod buffers;
mod cache;
#[cfg(not(target_arch = "wasm32"))]
mod custom;
mod descriptor;
mod driver;
mod mapping;
mod notes;
mod pipelines;
mod scopes;
mod sealed;
mod signal;
mod submit;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

pub use adapter::{Adapter, Select};
pub use cache::cache_folder;
pub use descriptor::descriptor;
pub use driver::{AdapterMemory, DriverMemory};
#[cfg(not(feature = "internals"))]
pub(crate) use {budget::Buffer, mapping::Mapping, pipelines::CustomSource, pipelines::PipelineSource};
#[cfg(feature = "internals")]
pub use {budget::Buffer, mapping::Mapping, pipelines::CustomSource, pipelines::PipelineSource};

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::maybe_async;
use budget::Budget;
use notes::Notes;
use pipelines::Pipelines;
use submit::{Rehearsal, Submits};

/// An open device. Cheap to clone; clones share pipelines.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

struct Shared {
    device: wgpu::Device,
    queue: wgpu::Queue,
    adapter: Adapter,
    pipelines: Pipelines,
    budget: Budget,
    rehearsal: Rehearsal,
    submits: Submits,
    /// wgpu's adapter; `None` for the device of an app.
    raw: Option<wgpu::Adapter>,
    notes: Notes,
    /// The first error that wgpu reported outside of any call: a validation failure or no memory for commands.
    failure: Arc<Mutex<Option<Error>>>,
    /// Why the device was lost; once set, every call returns it.
    lost: Arc<OnceLock<String>>,
    /// What browsers have not answered yet.
    #[cfg(target_family = "wasm")]
    scopes: Mutex<Vec<scopes::Pending>>,
}

/// Options for opening a device.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Which adapter.
    pub select: Select,
    /// Which of several adapters of the same name, backend and driver; past the last, the first again. Ranks of one
    /// machine take one each by their number.
    pub number: usize,
    /// Compile kernels with bounds checks and loop limits: slower, for debugging.
    pub checked: bool,
    /// Folder in which compiled pipelines are kept for later processes, such as [`cache_folder`], where the
    /// backend supports it. Measured results are kept there as well: whether cooperative matrices are correct
    /// and fast, and what tuning chose. Nobody else should be able to write to it: drivers trust its
    /// contents.
    pub cache: Option<PathBuf>,
    /// Let products and convolutions use the adapter's cooperative matrices where they proved correct and
    /// faster, through wgpu's experimental feature. On by default.
    pub cooperative: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self { select: Select::Best, number: 0, checked: false, cache: None, cooperative: true }
    }
}

impl Device {
    /// Opens the best adapter: discrete before integrated before software.
    ///
    /// # Errors
    /// [`Error::NoAdapter`], with the command that installs a software one.
    #[maybe_async]
    pub async fn new() -> Result<Self> {
        Self::open(&DeviceOptions::default()).await
    }

    /// Opens the first adapter whose name contains `name`, ignoring case; `vulkan:nvidia` asks for a backend as
    /// well ([`Select::Named`]).
    ///
    /// # Errors
    /// [`Error::Unknown`] with the available adapters.
    #[maybe_async]
    pub async fn by_name(name: &str) -> Result<Self> {
        Self::open(&DeviceOptions { select: Select::Named(name.to_owned()), ..DeviceOptions::default() })
            .await
    }

    /// Opens a software adapter, such as lavapipe.
    ///
    /// # Errors
    /// [`Error::NoAdapter`], with the command that installs one.
    #[maybe_async]
    pub async fn software() -> Result<Self> {
        Self::open(&DeviceOptions { select: Select::Software, ..DeviceOptions::default() }).await
    }

    /// Returns every adapter on this machine, best first, with the reason for or against each.
    #[maybe_async]
    pub async fn list() -> Vec<Adapter> {
        adapter::list().await.into_iter().map(|(_, adapter)| adapter).collect()
    }

    /// Opens an adapter.
    ///
    /// # Errors
    /// As [`Device::new`] and [`Device::by_name`]; [`Error::Device`] if the driver refuses.
    #[maybe_async]
    pub async fn open(options: &DeviceOptions) -> Result<Self> {
        let (raw, mut adapter) = adapter::choose(&options.select, options.number).await?;
        if !options.cooperative && !std::mem::take(&mut adapter.cooperative).is_empty() {
            "they are switched off".clone_into(&mut adapter.cooperative_reason);
        }
        let refused = |e: &dyn fmt::Display| Error::Device {
            what: format!("to open `{}`", adapter.name),
            message: e.to_string(),
        };
        let mut descriptor = descriptor(&raw);
        if options.cache.is_some() {
            descriptor.required_features |= raw.features() & wgpu::Features::PIPELINE_CACHE;
        }
        if !adapter.cooperative.is_empty() {
            descriptor.required_features |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
            // SAFETY: wgpu warns of undefined behaviour where such a feature has bugs. Only kernels of this
            // crate use it: they follow the rules of SPIR-V for addresses, strides and uniform control flow,
            // and avoid the known bugs. Plans use them only after a self-test on the same adapter and driver.
            descriptor.experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
        }
        let opened = raw.request_device(&descriptor);
        #[cfg(not(target_family = "wasm"))]
        let opened = pollster::block_on(opened);
        #[cfg(target_family = "wasm")]
        let opened = opened.await;
        let (device, queue) = opened.map_err(|e| refused(&e))?;
        let failure = Arc::new(Mutex::new(None));
        let (uncaptured, lost) = (Arc::clone(&failure), Arc::new(OnceLock::new()));
        let loss = Arc::clone(&lost);
        let budget = Budget::unlimited();
        let used = budget.used();
        device.set_device_lost_callback(move |reason, message| {
            // Dropping the device is reported as a loss as well.
            if reason != wgpu::DeviceLostReason::Destroyed {
                log::error!("the device was lost: {message}");
            }
            let _ = loss.set(message);
        });
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let message = error.to_string();
            let error = match error {
                wgpu::Error::OutOfMemory { .. } => {
                    Error::SubmitOutOfMemory { used: used.load(Ordering::Relaxed), message }
                }
                _ => Error::Device { what: "a command".to_owned(), message },
            };
            note(&uncaptured, error);
        }));
        let cache = options.cache.as_deref().and_then(|folder| cache::Cache::open(&device, folder));
        let pipelines = Pipelines::new(options.checked, cache);
        let notes = Notes::new(&raw.get_info(), options.cache.as_deref());
        Ok(Self {
            shared: Arc::new(Shared {
                device,
                queue,
                adapter,
                pipelines,
                budget,
                rehearsal: Rehearsal::default(),
                submits: Submits::default(),
                raw: Some(raw),
                notes,
                failure,
                lost,
                #[cfg(target_family = "wasm")]
                scopes: Mutex::default(),
            }),
        })
    }

    /// Uses a device and queue that the app has opened, with the limits and features that the app gave it.
    /// [`descriptor`] returns those suited to this crate, and memory hints with which wgpu reserves little
    /// more than is created. The app's error handlers stay as they are.
    pub fn from_wgpu(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let adapter = Adapter::of_device(&device);
        let failure = Arc::new(Mutex::new(None));
        let pipelines = Pipelines::new(false, None);
        let notes = Notes::new(&device.adapter_info(), None);
        Self {
            shared: Arc::new(Shared {
                device,
                queue,
                adapter,
                pipelines,
                budget: Budget::unlimited(),
                rehearsal: Rehearsal::default(),
                submits: Submits::default(),
                raw: None,
                notes,
                failure,
                lost: Arc::default(),
                #[cfg(target_family = "wasm")]
                scopes: Mutex::default(),
            }),
        }
    }

    /// Returns the adapter of the device.
    pub fn adapter(&self) -> &Adapter {
        &self.shared.adapter
    }

    /// Returns the limits that plans for this device must respect.
    pub fn limits(&self) -> &Limits {
        &self.shared.adapter.limits
    }

    /// Returns what to plan for on this device: its limits. Browsers have no cooperative matrices.
    #[cfg(target_family = "wasm")]
    pub fn target(&self, _precision: crate::dtype::Precision) -> Limits {
        self.limits().clone()
    }

    /// Returns wgpu's device.
    pub fn wgpu_device(&self) -> &wgpu::Device {
        &self.shared.device
    }

    /// Returns wgpu's queue.
    pub fn wgpu_queue(&self) -> &wgpu::Queue {
        &self.shared.queue
    }

    /// Runs the callbacks of finished work, without blocking.
    ///
    /// # Errors
    /// As [`Device::wait`].
    pub fn poll(&self) -> Result<()> {
        if let Err(e) = self.shared.device.poll(wgpu::PollType::Poll) {
            self.failure()?;
            return Err(self.lose(e.to_string()));
        }
        self.failure()
    }

    /// Returns the error of a call that wgpu refused: that the device was lost, if it was.
    pub(crate) fn refused(&self, what: impl Into<String>, error: &dyn fmt::Display) -> Error {
        match self.shared.lost.get() {
            Some(message) => Error::DeviceLost(message.clone()),
            None => Error::Device { what: what.into(), message: error.to_string() },
        }
    }

    /// Returns whether the device still works. A lost device stays lost.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] with the first reason.
    pub(crate) fn alive(&self) -> Result<()> {
        match self.shared.lost.get() {
            Some(message) => Err(Error::DeviceLost(message.clone())),
            None => Ok(()),
        }
    }

    /// Notes that the device is lost, and returns the error with the first reason for it.
    fn lose(&self, message: String) -> Error {
        Error::DeviceLost(self.shared.lost.get_or_init(|| message).clone())
    }

    /// Returns and clears the error that wgpu reported since the last call. A lost device stays lost: every
    /// other error follows from it.
    fn failure(&self) -> Result<()> {
        self.alive()?;
        lock(&self.shared.failure).take().map_or(Ok(()), Err)
    }
}

/// Stores the first failure: later ones follow from it.
fn note(failure: &Mutex<Option<Error>>, error: Error) {
    log::error!("{error}");
    lock(failure).get_or_insert(error);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.adapter.fmt(f)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}
