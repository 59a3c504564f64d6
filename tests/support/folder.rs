//! Folders for the files of a test.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A new folder of one test, removed at its end.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates it; `name` differs from those of the other tests.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wgrad-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the sorted names of what is in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}
