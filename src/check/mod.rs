//! Checks an adapter: every operation alone, then random networks through random options, against the `f64` twin.
//!
//! For each network, drawn by a seed:
//!
//! 1. The gradients of its graph as traced, in `f64`, against the slope of the loss along a random direction.
//! 2. The gradients of its plan with random options, computed by the twin from the plan's own graph, against the first: what
//!    every pass of the compiler does to a graph, the rounding to 16 bits included.
//! 3. Losses, outputs, parameters and optimizer state after one or two steps on the device, against the twin.
//! 4. In one network of four NaN or an infinity in an input or a parameter: what must be NaN is NaN, and what must be finite is.
//!
//! How far results may be apart is measured for each tensor: by what a relative change of all numbers that go in, as small as a
//! rounding error, changes in the twin's results.
//!
//! ```no_run
//! use wgrad::check::{self, Options};
//! use wgrad::device::Device;
//! let report = check::run(&Device::new()?, &Options { graphs: 20, ..Options::default() })?;
//! assert!(report.failures.is_empty(), "{:?}", report.failures);
//! # Ok::<(), wgrad::Error>(())
//! ```

// Without a device the crate's own tests check plans alone.
#![cfg_attr(not(feature = "gpu"), allow(dead_code))]

#[cfg(feature = "gpu")]
mod compare;
mod dice;
mod draws;
pub mod export;
mod measure;
mod network;
mod outcome;
mod plans;
mod reference;
mod settings;
#[cfg(test)]
mod tests;

use std::time::Duration;
#[cfg(feature = "gpu")]
use std::time::Instant;

#[cfg(feature = "gpu")]
use crate::{device::Device, error::Result, progress};
#[cfg(feature = "gpu")]
use {compare::Case, draws::DRAWS, network::Network};

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Random networks, after the operations alone.
    pub graphs: u64,
    /// Seed of the first network; the next has the next number.
    pub seed: u64,
    /// No network begins later than this.
    pub time: Option<Duration>,
    /// One network in so many fuses its operations: their kernels are compiled for it alone, which takes longest.
    pub fuse_one_in: usize,
}

impl Default for Options {
    /// 100 networks from seed 0, half of them fused, whatever time they take.
    fn default() -> Self {
        Self { graphs: 100, seed: 0, time: None, fuse_one_in: 2 }
    }
}

/// A difference beyond what rounding explains.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Seed of the network. [`Options::seed`] with one graph draws it again.
    pub seed: u64,
    /// The operation that was drawn alone; `None` for a random network.
    pub draw: Option<&'static str>,
    /// Options of the plan.
    pub option: String,
    /// What differs.
    pub what: String,
    /// By how much, where 1 is what is allowed; infinite where a number is missing.
    pub error: f64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The adapter's name.
    pub adapter: String,
    /// Operations that were checked alone.
    pub operations: u64,
    /// Random networks that were checked.
    pub graphs: u64,
    /// Differences.
    pub failures: Vec<Failure>,
    /// The largest difference of any result, where 1 is what is allowed.
    pub worst_error: f64,
}

/// Operations in a random network.
const NODES: std::ops::RangeInclusive<usize> = 12..=30;

/// How many the network of a seed has.
fn nodes(seed: u64) -> usize {
    let span = (NODES.end() - NODES.start() + 1) as u64;
    NODES.start() + (crate::random::mix(seed) % span) as usize
}

/// Checks the device's adapter.
///
/// # Errors
/// Those of devices, such as a lost one. Differences are [`Report::failures`]; a network that an adapter refuses is one, too.
#[cfg(feature = "gpu")]
pub fn run(device: &Device, options: &Options) -> Result<Report> {
    let start = Instant::now();
    let in_time = || options.time.is_none_or(|time| start.elapsed() < time);
    let mut report = Report { adapter: device.adapter().name.clone(), ..Report::default() };
    let task = progress::task("check", DRAWS.len() as u64 + options.graphs);
    for (i, (name, draw)) in DRAWS.iter().enumerate() {
        if !in_time() {
            break;
        }
        let seed = options.seed + i as u64;
        let case = Case { device, seed, draw: Some(name), fuse_one_in: options.fuse_one_in };
        case.run(Network::of(*draw, seed), &mut report)?;
        report.operations += 1;
        task.done(i as u64 + 1);
    }
    for i in 0..options.graphs {
        if !in_time() {
            break;
        }
        let seed = options.seed + i;
        let case = Case { device, seed, draw: None, fuse_one_in: options.fuse_one_in };
        case.run(Network::random(seed, nodes(seed)), &mut report)?;
        report.graphs += 1;
        task.done(DRAWS.len() as u64 + i + 1);
    }
    Ok(report)
}
