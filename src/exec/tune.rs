//! Tuning: measures which kernels compute matrix products and convolutions fastest on an adapter. It runs
//! only on request. Without it the tables choose the kernels, which gives the same choice every time.

use std::time::{Duration, Instant};

use super::{Session, trial};
use crate::compile::Plan;
use crate::device::Device;
use crate::dtype::Precision;
use crate::error::Result;
use crate::kernels::cooperative::{BLOCKS, Block};
use crate::kernels::matmul::{VARIANTS, Variant};
use crate::limits::{Limits, ShapeClass};
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

impl Work {
    fn class(self) -> ShapeClass {
        match self {
            Self::Product(sizes, _) => ShapeClass::of_product(1, sizes.map(|size| size as u64)),
            Self::Convolution(sizes) => {
                let [samples, channels, results, side] = sizes.map(|size| size as u64);
                ShapeClass::of_convolution(1, [results, samples * side * side, 9 * channels])
            }
        }
    }

    fn plan(self, precision: Precision, limits: &Limits) -> Result<Plan> {
        match self {
            Self::Product(sizes, transposed) => trial::product(sizes, transposed, precision, limits),
            Self::Convolution(sizes) => trial::convolution(sizes, precision, limits),
        }
    }
}

/// Products as of layers, of gradients of activations (`A Bᵀ`) and of weights (`Aᵀ B`). There is no convolution: on
/// software adapters the tables' choice depends on more than the shape's class.
const ON_CPUS: &[Work] = &[
    Work::Product([64, 256, 96], [false, true]),
    Work::Product([192; 3], [false, false]),
    Work::Product([96, 128, 2048], [true, false]),
    Work::Product([1024, 1024, 32], [false, false]),
];
/// The same kinds of products for every class, and convolutions.
const ON_GPUS: &[Work] = &[
    Work::Product([4096, 64, 1024], [false, false]),
    Work::Product([32, 4096, 4096], [false, true]),
    Work::Product([768, 1024, 768], [false, true]),
    Work::Product([768, 768, 8192], [true, false]),
    Work::Product([2048; 3], [false, false]),
    Work::Product([4096, 1024, 768], [false, true]),
    Work::Convolution([8, 64, 64, 56]),
    Work::Convolution([8, 128, 128, 28]),
    Work::Convolution([8, 256, 512, 14]),
    Work::Convolution([32, 128, 128, 28]),
];

/// A candidate counts as faster if it takes less than this fraction of the time of the table's choice;
/// smaller gains are noise.
const FASTER: f64 = 0.95;

/// Returns `limits` with the fastest variants of matrix products and convolutions in `precision`, for each
/// [`ShapeClass`], as [`KernelChoices::products`](crate::limits::KernelChoices::products). Plans made for the same
/// choices are identical. A class is left to the tables unless a candidate takes less than 95 % of the time of their
/// choice, as the geometric mean over the class's workloads. Classes of which every candidate was tried are saved for the
/// device and, with [`DeviceOptions::cache`](crate::device::DeviceOptions::cache), for later processes with
/// the same adapter, driver and version, which then do not measure them.
///
/// # Errors
/// Errors of compiling and running. Too little memory is not an error: workloads that do not fit are skipped.
pub fn tune(device: &Device, limits: &Limits, precision: Precision, tuning: &Tuning) -> Result<Limits> {
    let matrices = if limits.kernels.cooperative.is_some() { "_cooperative" } else { "" };
    let note = format!("products_{}{matrices}", precision.name());
    let mut known = device.note(&note).map(|text| noted(&text, limits)).unwrap_or_default();
    let works = if limits.class.is_cpu() { ON_CPUS } else { ON_GPUS };
    let open: Vec<ShapeClass> = ShapeClass::ALL
        .into_iter()
        .filter(|class| works.iter().any(|work| work.class() == *class))
        .filter(|class| known.iter().all(|(noted, _)| noted != class))
        .collect();
    let names = candidates(limits);
    let task = progress::task("tuning", (names.len() * open.len()) as u64);
    let mut run = Run {
        device,
        limits,
        precision,
        tuning,
        task,
        start: Instant::now(),
        longest: Duration::ZERO,
        tried: 0,
    };
    for class in open {
        let works: Vec<Work> = works.iter().copied().filter(|work| work.class() == class).collect();
        match run.class(class, &works, &names)? {
            Outcome::Best(name) => known.push((class, name)),
            Outcome::NothingFits => {}
            Outcome::OutOfTime => break,
        }
        device.set_note(&note, &text(&known));
    }
    log::info!(
        "{}: tuned with {} trials: {} classes of shapes are known",
        limits.name,
        run.tried,
        known.len()
    );
    let products = known.iter().fold(limits.kernels.products, |all, (class, name)| all.with(*class, *name));
    Ok(limits.choosing(|kernels| kernels.products = products))
}

/// What came of tuning a class.
enum Outcome {
    /// The fastest candidate; `None`: the tables' choice.
    Best(Option<&'static str>),
    /// No workload fits in the workspace.
    NothingFits,
    OutOfTime,
}

struct Run<'a> {
    device: &'a Device,
    limits: &'a Limits,
    precision: Precision,
    tuning: &'a Tuning,
    task: progress::Task,
    start: Instant,
    /// Time of the slowest candidate so far.
    longest: Duration,
    tried: u64,
}

impl Run<'_> {
    /// Measures every candidate that computes some of the workloads by other kernels than those before it.
    fn class(
        &mut self,
        class: ShapeClass,
        works: &[Work],
        names: &[Option<&'static str>],
    ) -> Result<Outcome> {
        let mut seen = Vec::new();
        let mut table: Option<Times> = None;
        let mut best = (FASTER, None);
        for &name in names {
            let products = self.limits.kernels.products.with(class, name);
            let limits = self.limits.choosing(|kernels| kernels.products = products);
            let plans =
                works.iter().map(|work| work.plan(self.precision, &limits)).collect::<Result<Vec<_>>>()?;
            let dispatches: Vec<_> = plans.iter().map(dispatches).collect();
            if seen.contains(&dispatches) {
                continue;
            }
            seen.push(dispatches);
            let begun = Instant::now();
            if self.tried > 0 && !allows_another(self.tuning.time, self.start.elapsed(), self.longest) {
                return Ok(Outcome::OutOfTime);
            }
            let times = plans.iter().map(|plan| self.time(plan)).collect::<Result<Times>>()?;
            self.longest = self.longest.max(begun.elapsed());
            self.tried += 1;
            self.task.done(self.tried);
            match &table {
                None if times.iter().all(Option::is_none) => return Ok(Outcome::NothingFits),
                None => table = Some(times),
                Some(table) => {
                    let share = share(&times, table);
                    let shown = name.unwrap_or_default();
                    log::debug!(
                        "{}, {}: {shown} takes {share:.3} of the table's time",
                        limits.name,
                        class.name()
                    );
                    best = if share < best.0 { (share, name) } else { best };
                }
            }
        }
        log::info!("{}: tuned {}: {}", self.limits.name, class.name(), best.1.unwrap_or(BY_TABLE));
        Ok(Outcome::Best(best.1))
    }

    /// Returns the seconds of a plan; `None` if it does not fit in memory.
    fn time(&self, plan: &Plan) -> Result<Option<f64>> {
        if plan.footprint().total() > self.tuning.max_workspace.0 {
            return Ok(None);
        }
        let session = match Session::new(self.device, plan) {
            Err(error) if error.is_out_of_memory() => return Ok(None),
            session => session?,
        };
        let [best] = trial::shortest(&mut [session])?;
        Ok(Some(best.as_secs_f64()))
    }
}

/// What distinguishes the dispatches of two plans of the same work: kernels, constants and grids.
fn dispatches(plan: &Plan) -> Vec<String> {
    let launches = plan.program.launches.iter().map(|(launch, _)| launch);
    launches
        .map(|launch| format!("{} {:?} {:?}", launch.kernel.name, launch.constants, launch.grid))
        .collect()
}

/// Whether another candidate, as slow as the slowest so far, would finish in `time`. The first one is always tried.
fn allows_another(time: Duration, elapsed: Duration, longest: Duration) -> bool {
    elapsed.saturating_add(longest) <= time
}

/// Name of the tables' own choice, in notes and logs.
const BY_TABLE: &str = "by the table";

/// Choices of finished classes.
type Known = Vec<(ShapeClass, Option<&'static str>)>;

/// Returns the lines of a note: a class and its choice each.
fn text(known: &Known) -> String {
    let line = |(class, name): &(ShapeClass, Option<&str>)| {
        format!("{} {}\n", class.name(), name.unwrap_or(BY_TABLE))
    };
    known.iter().map(line).collect()
}

/// Returns the choices of a note, without lines that are damaged or name what this adapter cannot run: those classes
/// are tuned again.
fn noted(text: &str, limits: &Limits) -> Known {
    let names = candidates(limits);
    let one = |line: &str| {
        let (class, name) = line.split_once(' ')?;
        let class = ShapeClass::ALL.into_iter().find(|known| known.name() == class)?;
        let name = names.iter().find(|known| known.unwrap_or(BY_TABLE) == name)?;
        Some((class, *name))
    };
    let read = |line| {
        one(line).or_else(|| {
            log::info!("{}: `{line}` is no choice of a kernel here; tuning again", limits.name);
            None
        })
    };
    text.lines().filter_map(read).collect()
}

/// Returns all candidates, the tables' choice first.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many candidates that take these seconds each are tried in `time` seconds.
    fn tried_in(time: u64, ways: &[u64]) -> usize {
        let seconds = Duration::from_secs;
        let (mut elapsed, mut longest) = (Duration::ZERO, Duration::ZERO);
        let mut tried = 0;
        for &way in ways {
            if !allows_another(seconds(time), elapsed, longest) {
                break;
            }
            elapsed += seconds(way);
            longest = longest.max(seconds(way));
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
    fn notes_keep_finished_classes_and_only_what_runs_here() {
        let limits = Limits::named("swiftshader").expect("a preset");
        let known = vec![(ShapeClass::ProductFew, None), (ShapeClass::ProductMany, Some("cpu8"))];
        assert_eq!(noted(&text(&known), &limits), known);
        for unknown in ["product-few cpu32", "product-few cooperative", "product cpu8", "nonsense", ""] {
            assert_eq!(noted(unknown, &limits), [], "{unknown}");
        }
    }

    #[test]
    fn every_class_has_a_workload_on_gpus_and_every_class_of_products_on_cpus() {
        for class in ShapeClass::ALL {
            let has = |works: &[Work]| works.iter().any(|work| work.class() == class);
            assert_eq!(
                (has(ON_GPUS), has(ON_CPUS)),
                (true, class.name().starts_with("product")),
                "{}",
                class.name()
            );
        }
    }
}
