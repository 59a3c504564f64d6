//! Compiled pipelines on disk, so that the next process need not compile them: where the backend can hand them out, which
//! today is Vulkan. A file that is damaged, of another driver or of another version counts as none.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Where programs keep what they can make again: `$XDG_CACHE_HOME/wgrad` or `~/.cache/wgrad`, on macOS
/// `~/Library/Caches/wgrad`, on Windows `%LOCALAPPDATA%\wgrad`. `None` where nobody says where that is.
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

/// The driver's cache and the file that it came from.
pub(super) struct Cache {
    pub(super) raw: wgpu::PipelineCache,
    path: PathBuf,
    /// What the file was made with: adapter, driver, version.
    maker: String,
    /// Checksum of what is in the file.
    stored: Mutex<u64>,
}

impl Cache {
    /// A cache filled from its file in `folder`, if that is sound; `None` for a backend that has no caches.
    pub(super) fn open(device: &wgpu::Device, folder: &Path) -> Option<Self> {
        let info = device.adapter_info();
        let name = wgpu::util::pipeline_cache_key(&info)?;
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let maker = format!(
            "{} · {} · {} · wgrad {}",
            info.name,
            info.driver,
            info.driver_info,
            env!("CARGO_PKG_VERSION")
        );
        let path = folder.join(format!("{name}_{:08x}", checksum(info.name.as_bytes()) as u32));
        let file = std::fs::read(&path).ok();
        let data = file.as_deref().and_then(|file| unpack(file, &maker));
        if file.is_some() && data.is_none() {
            log::info!("{}: of another driver or damaged, it will be written anew", path.display());
        }
        let descriptor = wgpu::PipelineCacheDescriptor { label: Some("wgrad"), data, fallback: true };
        // SAFETY: the data come from `get_data` of the same adapter, driver and version: the checksum over all of them
        // holds. wgpu checks its own header as well, and takes an empty cache where that does not fit.
        let raw = unsafe { device.create_pipeline_cache(&descriptor) };
        let stored = Mutex::new(data.map_or(0, checksum));
        Some(Self { raw, path, maker, stored })
    }

    /// Writes the cache to its file if there is something new in it. What cannot be written is told in the log.
    pub(super) fn save(&self) {
        let Some(data) = self.raw.get_data() else { return };
        let mut stored = self.stored.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now = checksum(&data);
        if *stored == now {
            return;
        }
        *stored = now;
        // Whole or not at all, whoever else writes at the same time.
        let partial = self.path.with_extension(format!("{}.partial", std::process::id()));
        let write = || {
            std::fs::create_dir_all(self.path.parent().unwrap_or(Path::new(".")))?;
            std::fs::write(&partial, pack(&data, &self.maker))?;
            std::fs::rename(&partial, &self.path)
        };
        if let Err(error) = write() {
            log::warn!("{}: compiled pipelines are not kept: {error}", self.path.display());
            let _ = std::fs::remove_file(&partial);
        }
    }
}

/// How a file begins.
const MAGIC: &[u8] = b"wgrad pipelines 1\n";

/// Magic, checksum of the rest, length of the maker's name, the name, the data.
fn pack(data: &[u8], maker: &str) -> Vec<u8> {
    let rest = [&(maker.len() as u64).to_le_bytes(), maker.as_bytes(), data].concat();
    [MAGIC, &checksum(&rest).to_le_bytes(), &rest].concat()
}

/// The data of a file that is whole and of this maker.
fn unpack<'f>(file: &'f [u8], maker: &str) -> Option<&'f [u8]> {
    let (sum, rest) = file.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*sum) != checksum(rest) {
        return None;
    }
    let (length, rest) = rest.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*length) == maker.len() as u64).then_some(())?;
    rest.strip_prefix(maker.as_bytes())
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_files_of_the_same_maker_are_used() {
        let file = pack(b"pipelines", "driver 1");
        assert_eq!(unpack(&file, "driver 1"), Some(&b"pipelines"[..]));
        assert_eq!(unpack(&file, "driver 2"), None);
        assert_eq!(unpack(&file, "driver"), None);
        assert_eq!(unpack(&pack(b"", "driver 1"), "driver 1"), Some(&b""[..]));
        for end in 0..file.len() {
            assert_eq!(unpack(&file[..end], "driver 1"), None, "cut after {end} bytes");
            let mut damaged = file.clone();
            damaged[end] ^= 0x10;
            assert_eq!(unpack(&damaged, "driver 1"), None, "damaged at {end}");
        }
    }
}
