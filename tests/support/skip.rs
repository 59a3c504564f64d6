//! How a test reports that it cannot check everything on this machine.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Prints `SKIPPED: ` and what was left out, once for each test program. It writes to the process's own
/// stderr: the test harness shows the output of `eprintln!` only for failed tests, and a test that skips
/// passes.
pub fn skip(what: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned()) {
        return;
    }
    // A single write, so that lines of concurrent tests stay whole. A closed stderr is not an error of this
    // test.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {what}\n").as_bytes());
}

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
