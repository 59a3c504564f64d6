//! What a test says when it cannot check everything here.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Prints `SKIPPED: ` and what was left out. It goes to the process's own stderr: what `eprintln!` prints the test harness
/// shows for failed tests alone, and a test that skips passes. Each line is printed once for each test program.
pub fn skip(what: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned()) {
        return;
    }
    // One write, so that lines of tests that run at the same time stay whole. A closed stderr is not this test's failure.
    let _ = std::io::stderr().write_all(format!("SKIPPED: {what}\n").as_bytes());
}

/// The CSV files of a folder of public problems, sorted by name, in the folder that `WGRAD_PROBLEMS` names; none, with a line
/// that says so, where it names none. Problems of our own, with known optima, are in `benches/problems`.
pub fn public_problems(folder: &str) -> Vec<PathBuf> {
    if let Some(root) = std::env::var_os("WGRAD_PROBLEMS") {
        return csv_files(&Path::new(&root).join(folder));
    }
    skip(&format!("public problems of `{folder}`: WGRAD_PROBLEMS names no folder that holds them"));
    Vec::new()
}

/// A folder of `benches/problems`.
pub fn committed_problems(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/problems").join(folder)
}

/// The CSV files of a folder, sorted by name; there must be some.
pub fn csv_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    assert!(!files.is_empty(), "no CSV in {}", folder.display());
    files
}
