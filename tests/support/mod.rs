//! What the tests share: every adapter of the machine as data, comparisons that name the worst element, and
//! graphs that run both on a device and on the `f64` twin. Without the feature `gpu`, only the parts that
//! need no device.
//!
//! `WGRAD_REQUIRE_ADAPTERS` (comma-separated parts of names) lists the adapters that must be present. With
//! `WGRAD_REQUIRE_COOPERATIVE=1` one of them must have cooperative matrices. `WGRAD_ADAPTER` (part of a name) leaves out
//! all others. `WGRAD_FIXTURES` is the folder that the tests read files in, where it is not the repository that they
//! were compiled in.
#![allow(dead_code, unused_imports, reason = "each test program uses a part")]

#[cfg(feature = "gpu")]
mod adapters;
pub mod attention_cases;
pub mod browser;
pub mod cases;
pub mod close;
#[cfg(feature = "gpu")]
pub mod compare;
pub mod digits;
pub mod folder;
#[cfg(feature = "safetensors")]
pub mod golden;
pub mod image_cases;
#[cfg(feature = "gpu")]
pub mod networks;
pub mod problem_files;
pub mod problems;
pub mod pytorch;
pub mod random_graph;
#[cfg(feature = "gpu")]
pub mod ranks;
pub mod row_cases;
pub mod site;
pub mod skip;
#[cfg(feature = "gpu")]
#[path = "../../examples/support/tasks.rs"]
pub mod tasks;

#[cfg(feature = "gpu")]
pub use adapters::{
    both_classes, checked_devices, cooperative, devices, each_case, on_each, own_devices,
    rows_of_convolutions,
};
use std::path::PathBuf;

use wgrad::random;

/// Returns the folder that holds `tests/golden` and `benches/problems`.
pub fn fixtures() -> PathBuf {
    let compiled_in = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    std::env::var_os("WGRAD_FIXTURES").map_or_else(compiled_in, PathBuf::from)
}

/// Returns `n` numbers in [low, high), always the same for a seed.
pub fn noise(seed: u64, n: usize, low: f32, high: f32) -> Vec<f32> {
    let key = random::key(seed, "noise");
    (0..n as u64).map(|i| low + (high - low) * random::uniform(key, i)).collect()
}

/// Returns `n` class indices below `classes`.
pub fn some_labels(seed: u64, n: usize, classes: u32) -> Vec<u32> {
    let key = random::key(seed, "labels");
    (0..n as u64).map(|i| (random::bits(key, i) % u64::from(classes)) as u32).collect()
}
