//! Options that select and open the adapter; shared by all measurements.

use std::path::PathBuf;
use std::time::Duration;

use wgrad::device::{Device, DeviceOptions, Select, cache_folder};
use wgrad::dtype::Precision;
use wgrad::exec::{self, Tuning};
use wgrad::limits::Limits;
use wgrad::{Error, Result};

#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Part of an adapter's name, its backend, or both, such as vulkan:nvidia; or best, or software. By default the
    /// value of WGRAD_ADAPTER, else the best one.
    #[arg(long, value_name = "[BACKEND:]NAME")]
    adapter: Option<String>,
    /// Compile kernels with bounds checks and loop limits.
    #[arg(long)]
    checked: bool,
    /// Cache compiled pipelines in this folder, by default the user's cache folder, if the driver supports
    /// it.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1)]
    cache: Option<Option<PathBuf>>,
    /// Whether products and convolutions in f16 precision use the adapter's cooperative matrices: auto, if
    /// tests find them correct and faster; always, if tests find them correct; off.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    cooperative: Cooperative,
    /// First tune products and convolutions for up to this many seconds; with --cache, once per adapter and
    /// driver.
    #[arg(long, value_name = "SECONDS")]
    tune: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Cooperative {
    Auto,
    Always,
    Off,
}

impl Options {
    pub fn open(&self) -> Result<Device> {
        self.open_number(0)
    }

    /// Opens the device of a rank.
    pub fn open_number(&self, number: usize) -> Result<Device> {
        let named = self.adapter.clone().or_else(|| std::env::var("WGRAD_ADAPTER").ok());
        let select = named.filter(|name| !name.is_empty()).map_or(Select::Best, |name| Select::from(&*name));
        let cache = self.cache.clone().and_then(|folder| folder.or_else(cache_folder));
        let cooperative = self.cooperative != Cooperative::Off;
        Device::open(&DeviceOptions { select, number, checked: self.checked, cache, cooperative })
    }

    /// Returns the limits to plan for.
    pub fn limits(&self, device: &Device, precision: Precision) -> Result<Limits> {
        let limits = match (self.cooperative, precision) {
            (Cooperative::Always, Precision::F16) => exec::test_cooperative(device)?,
            _ => device.target(precision),
        };
        match self.tuning()? {
            Some(tuning) => exec::tune(device, &limits, precision, &tuning),
            None => Ok(limits),
        }
    }

    /// Returns how long to tune before a run.
    fn tuning(&self) -> Result<Option<Tuning>> {
        let Some(seconds) = self.tune else { return Ok(None) };
        let time = Duration::try_from_secs_f64(seconds);
        let time = time.map_err(|_| {
            Error::setting("command line", format!("--tune {seconds}: expected a number of seconds"))
        })?;
        Ok(Some(Tuning { time, ..Tuning::default() }))
    }

    /// Returns how long a trainer is to tune. It uses cooperative matrices as tests find them.
    pub fn trainer_tuning(&self) -> Result<Option<Tuning>> {
        if self.cooperative == Cooperative::Always {
            let message = "--cooperative always is for measurements: auto uses them where they are faster";
            return Err(Error::setting("command line", message));
        }
        self.tuning()
    }

    /// Whether kernels check bounds.
    pub fn checked(&self) -> bool {
        self.checked
    }
}
