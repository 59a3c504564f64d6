//! Which adapter, opened how: what measurements have in common.

use std::path::PathBuf;
use std::time::Duration;

use wgrad::device::{Device, DeviceOptions, Select, cache_folder};
use wgrad::dtype::Precision;
use wgrad::exec::{self, Tuning};
use wgrad::limits::Limits;
use wgrad::{Error, Result};

#[derive(clap::Args)]
pub struct Options {
    /// Part of an adapter's name; the best one by default.
    #[arg(long)]
    adapter: Option<String>,
    /// Compile kernels with bounds checks and loop limits.
    #[arg(long)]
    checked: bool,
    /// Keep compiled pipelines in this folder, by default the user's for caches, where the driver can.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1)]
    cache: Option<Option<PathBuf>>,
    /// Whether products and convolutions in f16 precision use the adapter's cooperative matrices: auto, where they proved right
    /// and faster; always, where they proved right; off.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    cooperative: Cooperative,
    /// Look for the fastest way to compute products and convolutions first, for so long; with --cache once for an adapter and driver.
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
        let select = self.adapter.clone().map_or(Select::Best, Select::Named);
        let cache = self.cache.clone().and_then(|folder| folder.or_else(cache_folder));
        let cooperative = self.cooperative != Cooperative::Off;
        Device::open(&DeviceOptions { select, checked: self.checked, cache, cooperative })
    }

    /// What plans for the device may count on.
    pub fn limits(&self, device: &Device, precision: Precision) -> Result<Limits> {
        let limits = match (self.cooperative, precision) {
            (Cooperative::Always, Precision::F16) => exec::test_cooperative(device)?,
            _ => exec::limits_for(device, precision),
        };
        let Some(seconds) = self.tune else { return Ok(limits) };
        let time = Duration::try_from_secs_f64(seconds);
        let time =
            time.map_err(|_| Error::Option(format!("--tune {seconds}: expected a number of seconds")))?;
        exec::tune(device, &limits, precision, &Tuning { time, ..Tuning::default() })
    }

    /// Whether kernels check bounds.
    pub fn checked(&self) -> bool {
        self.checked
    }
}
