//! Notes: results of measurements on an adapter. They are kept for as long as the device is open and, with a
//! cache folder, for later processes with the same adapter, driver and version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use super::{Device, lock, sealed};

/// First bytes of a file: format and version.
const MAGIC: &[u8] = b"wgrad notes 1\n";

pub(super) struct Notes {
    folder: Option<PathBuf>,
    maker: String,
    known: Mutex<BTreeMap<String, String>>,
}

impl Notes {
    pub(super) fn new(info: &wgpu::AdapterInfo, folder: Option<&Path>) -> Self {
        let folder = folder.map(Path::to_owned);
        Self { folder, maker: sealed::maker(info), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        lock(&self.known)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let maker = sealed::checksum(self.maker.as_bytes());
        self.folder.as_ref().map(|folder| folder.join(format!("note_{maker:016x}_{name}")))
    }

    /// Returns the contents of a note's file. A file that cannot be used is logged.
    fn read(&self, name: &str) -> Option<String> {
        let path = self.path(name)?;
        let file = std::fs::read(&path).ok()?;
        let text =
            sealed::unpack(MAGIC, &file, &self.maker).map(|text| String::from_utf8_lossy(text).into_owned());
        if text.is_none() {
            log::info!("{}: of another driver or damaged, it will be written anew", path.display());
        }
        text
    }
}

impl Device {
    /// Returns the note of this name, if there is one. The name must be suitable for a file name.
    pub(crate) fn note(&self, name: &str) -> Option<String> {
        let notes = &self.shared.notes;
        let mut known = notes.known();
        if let Some(text) = known.get(name) {
            return Some(text.clone());
        }
        let text = notes.read(name)?;
        known.insert(name.to_owned(), text.clone());
        Some(text)
    }

    /// Stores a note. A failed write to the folder is logged.
    pub(crate) fn set_note(&self, name: &str, text: &str) {
        let notes = &self.shared.notes;
        notes.known().insert(name.to_owned(), text.to_owned());
        let Some(path) = notes.path(name) else { return };
        if let Err(error) = sealed::write(&path, &sealed::pack(MAGIC, text.as_bytes(), &notes.maker)) {
            log::warn!("{}: not kept: {error}", path.display());
        }
    }
}
