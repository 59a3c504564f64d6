//! Tuning: measures which kernels compute matrix products and convolutions fastest on an adapter. It runs
//! only on request. Without it the tables choose the kernels, which gives the same choice every time.

use std::time::{Duration, Instant};

use super::{Session, trial};
use crate::device::Device;
use crate::dtype::Precision;
use crate::error::Result;
use crate::kernels::cooperative::{BLOCKS, Block};
use crate::kernels::matmul::{VARIANTS, Variant};
use crate::limits::Limits;
use crate::progress;
use crate::units::Bytes;

/// Limits on tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Wall-clock time. A candidate is not tried if, going by the slowest one so far, it would probably not
    /// finish in time.
    pub time: Duration,
    /// Bytes on the device at any time. Workloads that need more are skipped.
    pub max_workspace: Bytes,
}

impl Default for Tuning {
    /// Five seconds, 256 MiB.
    fn default() -> Self {
        Self { time: Duration::from_secs(5), max_workspace: Bytes(256 << 20) }
    }
}

/// A workload to measure.
#[derive(Clone, Copy)]
enum Work {
    /// m, n, k, and which operand is transposed.
    Product([usize; 3], [bool; 2]),
    /// Samples, channels, result channels, side.
    Convolution([usize; 4]),
}

/// A square product, a product as for the gradient of an activation, and one as for the gradient of a weight.
/// There is no convolution: no tiling of products that could be fastest on a CPU is also one of convolutions.
const ON_CPUS: &[Work] = &[
    Work::Product([192; 3], [false, false]),
    Work::Product([64, 256, 96], [false, true]),
    Work::Product([96, 128, 256], [true, false]),
];
/// The same kinds of products, and a convolution, which uses the same tiles.
const ON_GPUS: &[Work] = &[
    Work::Product([2048; 3], [false, false]),
    Work::Product([1024, 512, 768], [false, true]),
    Work::Product([768, 1024, 2048], [true, false]),
    Work::Convolution([8, 64, 64, 56]),
];

/// A candidate counts as faster if it takes less than this fraction of the time of the table's choice;
/// smaller gains are noise.
const FASTER: f64 = 0.95;

/// Returns `limits` with the fastest way to compute matrix products in `precision` as [`KernelChoices::product`](crate::limits::KernelChoices::product);
/// convolutions use the same tiles. Plans made for the same choice are identical. The result is [`None`], the
/// tables' choice, unless a candidate takes less than 95 % of the time of that choice, as the geometric mean
/// over a few products and, on GPUs, a convolution. If every candidate was tried, the result is saved for the
/// device and, with [`DeviceOptions::cache`](crate::device::DeviceOptions::cache), for later processes with
/// the same adapter, driver and version, which then measure nothing.
///
/// # Errors
/// Errors of compiling and running. Too little memory is not an error: workloads that do not fit are skipped.
pub fn tune(device: &Device, limits: &Limits, precision: Precision, tuning: &Tuning) -> Result<Limits> {
    let matrices = if limits.kernels.cooperative.is_some() { "_cooperative" } else { "" };
    let note = format!("products_{}{matrices}", precision.name());
    if let Some(product) = device.note(&note).and_then(|text| product_of(&text, limits)) {
        return Ok(limits.choosing(|kernels| kernels.product = product));
    }
    let (start, mut deadline) = (Instant::now(), Deadline { time: tuning.time, longest: Duration::ZERO });
    let names = candidates(limits);
    let task = progress::task("tuning", names.len() as u64);
    let mut table: Option<Times> = None;
    let mut best = (FASTER, None);
    let mut tried = 0;
    for &name in &names {
        let begun = Instant::now();
        if !deadline.allows_another(start.elapsed()) {
            break;
        }
        let times = times(device, &limits.choosing(|kernels| kernels.product = name), precision, tuning)?;
        deadline.longest = deadline.longest.max(begun.elapsed());
        tried += 1;
        task.done(tried);
        match &table {
            None => table = Some(times),
            Some(table) => {
                let share = share(&times, table);
                log::debug!(
                    "{}: {} takes {share:.3} of the table's time",
                    limits.name,
                    name.unwrap_or_default()
                );
                best = if share < best.0 { (share, name) } else { best };
            }
        }
    }
    log::info!("{}: tuned with {tried} of {} ways: {}", limits.name, names.len(), best.1.unwrap_or(BY_TABLE));
    let measured = table.is_some_and(|times| times.iter().any(Option::is_some));
    if measured && tried == names.len() as u64 {
        device.set_note(&note, best.1.unwrap_or(BY_TABLE));
    }
    Ok(limits.choosing(|kernels| kernels.product = best.1))
}

/// Time limit of tuning.
struct Deadline {
    time: Duration,
    /// Time of the slowest candidate so far.
    longest: Duration,
}

impl Deadline {
    /// Whether another candidate, as slow as the slowest so far, would finish in time.
    fn allows_another(&self, elapsed: Duration) -> bool {
        elapsed.saturating_add(self.longest) <= self.time
    }
}

/// Name of the table's own choice, in notes and logs.
const BY_TABLE: &str = "by the table";

/// Returns the choice that a note names; `None` if the name is unknown or this adapter cannot run it.
fn product_of(text: &str, limits: &Limits) -> Option<Option<&'static str>> {
    let known = candidates(limits).into_iter().find(|name| name.unwrap_or(BY_TABLE) == text);
    if known.is_none() {
        log::info!("{}: no way to compute products is called `{text}` here; tuning again", limits.name);
    }
    known
}

/// Returns all candidates, the table's choice first.
fn candidates(limits: &Limits) -> Vec<Option<&'static str>> {
    let rows = VARIANTS
        .iter()
        .filter(|variant: &&Variant| variant.runs_on(limits))
        .map(|variant| Some(variant.name));
    let blocks = BLOCKS.iter().filter(|block: &&Block| block.runs_on(limits)).map(|block| Some(block.name));
    std::iter::once(None).chain(rows).chain(blocks).collect()
}

/// Seconds of each workload; `None` for workloads that did not fit in memory.
type Times = Vec<Option<f64>>;

/// Returns the geometric mean of the ratios of `times` to `others`, so that every workload has the same
/// weight.
fn share(times: &Times, others: &Times) -> f64 {
    let both: Vec<f64> = times.iter().zip(others).filter_map(|(a, b)| Some(((*a)? / (*b)?).ln())).collect();
    if both.is_empty() { 1.0 } else { (both.iter().sum::<f64>() / both.len() as f64).exp() }
}

fn times(device: &Device, limits: &Limits, precision: Precision, tuning: &Tuning) -> Result<Times> {
    let works = if limits.class.is_cpu() { ON_CPUS } else { ON_GPUS };
    works.iter().map(|work| time(device, limits, precision, (*work, tuning.max_workspace))).collect()
}

fn time(
    device: &Device,
    limits: &Limits,
    precision: Precision,
    (work, most): (Work, Bytes),
) -> Result<Option<f64>> {
    let plan = match work {
        Work::Product(sizes, transposed) => trial::product(sizes, transposed, precision, limits)?,
        Work::Convolution(sizes) => trial::convolution(sizes, precision, limits)?,
    };
    if plan.footprint().total() > most.0 {
        return Ok(None);
    }
    let session = match Session::new(device, &plan) {
        Err(error) if error.is_out_of_memory() => return Ok(None),
        session => session?,
    };
    let [best] = trial::shortest(&mut [session])?;
    Ok(Some(best.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many candidates that take these seconds each are tried in `time` seconds.
    fn tried_in(time: u64, ways: &[u64]) -> usize {
        let seconds = Duration::from_secs;
        let (mut elapsed, mut deadline) =
            (Duration::ZERO, Deadline { time: seconds(time), longest: Duration::ZERO });
        let mut tried = 0;
        for &way in ways {
            if !deadline.allows_another(elapsed) {
                break;
            }
            elapsed += seconds(way);
            deadline.longest = deadline.longest.max(seconds(way));
            tried += 1;
        }
        tried
    }

    #[test]
    fn trials_that_would_exceed_the_time_limit_are_not_started() {
        assert_eq!(tried_in(100, &[3, 1, 4, 2]), 4);
        // After 3 + 1 seconds, 3 more would end at 7.
        assert_eq!(tried_in(7, &[3, 1, 3, 1]), 3);
        assert_eq!(tried_in(6, &[3, 1, 3, 1]), 2);
        // The first candidate is always tried: its time is not known in advance.
        assert_eq!(tried_in(1, &[3, 1, 3, 1]), 1);
    }

    #[test]
    fn every_workload_has_the_same_weight() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} and {b}");
        close(share(&vec![Some(2.0), Some(0.01)], &vec![Some(1.0), Some(0.02)]), 1.0);
        close(share(&vec![Some(0.5), None], &vec![Some(1.0), Some(7.0)]), 0.5);
        close(share(&vec![None], &vec![Some(1.0)]), 1.0);
    }

    #[test]
    fn cached_names_are_accepted_only_if_they_run_here() {
        let limits = Limits::named("swiftshader").expect("a preset");
        assert_eq!(product_of(BY_TABLE, &limits), Some(None));
        assert_eq!(product_of("cpu8", &limits), Some(Some("cpu8")));
        for unknown in ["cpu32", "cooperative", "nonsense", ""] {
            assert_eq!(product_of(unknown, &limits), None, "{unknown}");
        }
    }
}
