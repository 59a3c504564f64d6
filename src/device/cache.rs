//! Compiled pipelines on disk, so that the next process need not compile them. This works where the backend
//! can return them, which today is Vulkan.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{lock, sealed};

/// First bytes of a file: format and version.
const MAGIC: &[u8] = b"wgrad pipelines 1\n";

/// Returns the folder for data that programs can recompute: `$XDG_CACHE_HOME/wgrad` or `~/.cache/wgrad`, on
/// macOS `~/Library/Caches/wgrad`, on Windows `%LOCALAPPDATA%\wgrad`. `None` if the environment does not
/// define it.
pub fn cache_folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = if cfg!(windows) {
        named("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        named("HOME").map(|home| home.join("Library/Caches"))
    } else {
        named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")))
    };
    folder.map(|folder| folder.join("wgrad"))
}

/// The driver's cache and the file that it was read from and is written to.
pub(super) struct Cache {
    pub(super) raw: wgpu::PipelineCache,
    path: PathBuf,
    /// What the file is valid for: adapter, driver, version.
    maker: String,
    /// Checksum of the data in the file.
    stored: Mutex<u64>,
}

impl Cache {
    /// Opens a cache with the contents of its file in `folder`, if that is valid; `None` for a backend that
    /// has no caches.
    pub(super) fn open(device: &wgpu::Device, folder: &Path) -> Option<Self> {
        let info = device.adapter_info();
        let name = wgpu::util::pipeline_cache_key(&info)?;
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let maker = sealed::maker(&info);
        let path = folder.join(format!("{name}_{:08x}", sealed::checksum(info.name.as_bytes()) as u32));
        let file = std::fs::read(&path).ok();
        let data = file.as_deref().and_then(|file| sealed::unpack(MAGIC, file, &maker));
        if file.is_some() && data.is_none() {
            log::info!("{}: of another driver or damaged, it will be written anew", path.display());
        }
        let descriptor = wgpu::PipelineCacheDescriptor { label: Some("wgrad"), data, fallback: true };
        // SAFETY: the data come from `get_data` of the same adapter, driver and version, which the checksum
        // over all of them confirms. wgpu checks its own header as well, and uses an empty cache if that does
        // not match.
        let raw = unsafe { device.create_pipeline_cache(&descriptor) };
        let stored = Mutex::new(data.map_or(0, sealed::checksum));
        Some(Self { raw, path, maker, stored })
    }

    /// Writes the cache to its file if it has changed. A failed write is logged.
    pub(super) fn save(&self) {
        let Some(data) = self.raw.get_data() else { return };
        let mut stored = lock(&self.stored);
        let now = sealed::checksum(&data);
        if *stored == now {
            return;
        }
        *stored = now;
        if let Err(error) = sealed::write(&self.path, &sealed::pack(MAGIC, &data, &self.maker)) {
            log::warn!("{}: compiled pipelines are not kept: {error}", self.path.display());
        }
    }
}
