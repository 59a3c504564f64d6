//! Which adapter, opened how: what measurements have in common.

use std::path::PathBuf;

use wgrad::Result;
use wgrad::device::{Device, DeviceOptions, Select, cache_folder};

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
}

impl Options {
    pub fn open(&self) -> Result<Device> {
        let select = self.adapter.clone().map_or(Select::Best, Select::Named);
        let cache = self.cache.clone().and_then(|folder| folder.or_else(cache_folder));
        Device::open(&DeviceOptions { select, checked: self.checked, cache })
    }

    /// Whether kernels check bounds.
    pub fn checked(&self) -> bool {
        self.checked
    }
}
