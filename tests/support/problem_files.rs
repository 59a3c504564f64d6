//! Files of packing problems: wgrad's own, and public ones where they are there.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};

use super::skip::skip;

/// Returns the CSV files of a folder of public problems, sorted by name, in the folder that `WGRAD_PROBLEMS`
/// names; none, after reporting the skip, if it is not set. wgrad's own problems, with known optima, are in
/// `benches/problems`.
pub fn public_problems(folder: &str) -> Vec<PathBuf> {
    if let Some(root) = std::env::var_os("WGRAD_PROBLEMS") {
        return csv_files(&Path::new(&root).join(folder));
    }
    skip(&format!("public problems of `{folder}`: WGRAD_PROBLEMS names no folder that holds them"));
    Vec::new()
}

/// Returns a folder of `benches/problems`.
pub fn committed_problems(folder: &str) -> PathBuf {
    super::fixtures().join("benches/problems").join(folder)
}

/// Returns the CSV files of a folder, sorted by name; there must be at least one.
pub fn csv_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    assert!(!files.is_empty(), "no CSV in {}", folder.display());
    files
}
