//! Checks an adapter: every operation alone, then random networks with random options, against the `f64`
//! reference ([`crate::reference::Twin`]).
//!
//! For each network, drawn by a seed:
//!
//! 1. The gradients of its traced graph, in `f64`, against the slope of the loss along a random direction.
//! 2. The gradients of its plan with random options, against those of 1. The reference computes them from the
//!    plan's own graph, so this checks every compiler pass, including the rounding to 16 bits.
//! 3. Losses, outputs, parameters and optimizer state after one or two steps on the device, against the
//!    reference.
//! 4. With several parts of the batch, the same run on ranks with a part each or with shares of their own: the bits of one
//!    device. With one part, a run on two ranks that compute layers together, as 3. Browsers, which give no threads, leave
//!    that out.
//! 5. In one of four networks, a NaN or an infinity in an input or a parameter: results that must be NaN are
//!    NaN, and results that must be finite are finite.
//!
//! The tolerance is measured for each tensor: it is based on the change in the reference's results when all
//! inputs change by a relative amount as small as a rounding error.
//!
//! ```no_run
//! use wgrad::check::{self, Options};
//! use wgrad::device::Device;
//! let report = check::run(&Device::new()?, &Options { graphs: 20, ..Options::default() })?;
//! assert!(report.failures.is_empty(), "{:?}", report.failures);
//! # Ok::<(), wgrad::Error>(())
//! ```

// Without the `gpu` feature the crate's tests check only plans.
#![cfg_attr(not(feature = "gpu"), allow(dead_code))]

mod attention;
#[cfg(feature = "gpu")]
mod compare;
mod composed;
mod custom;
mod dice;
mod draws;
pub mod export;
#[cfg(test)]
mod hostile_tests;
mod measure;
mod network;
mod outcome;
mod plans;
mod reference;
mod settings;
#[cfg(test)]
mod tests;
mod wide;

use std::time::Duration;

#[cfg(feature = "gpu")]
use crate::{device::Device, error::Result, maybe_async, progress, time::Instant};
#[cfg(feature = "gpu")]
use {compare::Case, draws::DRAWS, network::Network};

/// Options of a check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of random networks, which run after the single operations.
    pub graphs: u64,
    /// Seed of the first network; the seeds of the others count up from it.
    pub seed: u64,
    /// Time limit: no network starts later than this.
    pub time: Option<Duration>,
    /// One in this many networks fuses its operations. Fused kernels are compiled for that network alone,
    /// which takes the most time.
    pub fuse_one_in: usize,
}

impl Default for Options {
    /// 100 networks from seed 0, half of them fused, without a time limit.
    fn default() -> Self {
        Self { graphs: 100, seed: 0, time: None, fuse_one_in: 2 }
    }
}

/// A difference larger than rounding explains.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Seed of the network. [`Options::seed`] set to it, with one graph, reproduces a random network.
    pub seed: u64,
    /// The operation that was checked alone; `None` for a random network.
    pub draw: Option<&'static str>,
    /// Options of the plan.
    pub option: String,
    /// What differs.
    pub what: String,
    /// The difference in units of the tolerance; infinite if a number is missing.
    pub error: f64,
}

/// Results of a check.
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
    /// The largest difference that is not a failure, in units of the tolerance.
    pub worst_error: f64,
}

/// Operations in a random network.
const NODES: std::ops::RangeInclusive<usize> = 12..=30;

/// Returns the number of operations of the network of a seed.
fn nodes(seed: u64) -> usize {
    let span = (NODES.end() - NODES.start() + 1) as u64;
    NODES.start() + (crate::random::mix(seed) % span) as usize
}

/// Checks the device's adapter.
///
/// # Errors
/// Those of devices, such as a lost one. Differences are [`Report::failures`], and so are networks that an
/// adapter rejects.
#[cfg(feature = "gpu")]
#[maybe_async]
pub async fn run(device: &Device, options: &Options) -> Result<Report> {
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
        case.run(Network::of(*draw, seed), &mut report).await?;
        report.operations += 1;
        task.done(i as u64 + 1);
    }
    for i in 0..options.graphs {
        if !in_time() {
            break;
        }
        let seed = options.seed + i;
        let case = Case { device, seed, draw: None, fuse_one_in: options.fuse_one_in };
        case.run(Network::random(seed, nodes(seed)), &mut report).await?;
        report.graphs += 1;
        task.done(DRAWS.len() as u64 + i + 1);
    }
    Ok(report)
}
