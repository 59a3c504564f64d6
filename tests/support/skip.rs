//! How a test reports that it cannot check everything on this machine.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeSet;
use std::io::Write as _;
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
