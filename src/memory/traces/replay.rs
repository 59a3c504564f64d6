//! Runs a trace through the strategies and measures the memory and the time that each needs.

mod planned;

use super::trace::{Step, Trace};
use crate::memory::{AllocError, Block, Growth, Kind, Offsets, Pool, PoolOptions, Request, Strategy};
use crate::time::Instant;

/// Source of a contender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// One page, created in advance. Its reserved bytes are the smallest page that serves the whole trace.
    OnePage(Kind),
    /// A pool that grows page by page. Its reserved bytes are the peak of its pages.
    Pages(PoolOptions),
    /// A pool that learns. The trace is a step, which is run twice: what the second run reserves, and its time,
    /// count. Blocks that the trace does not free are freed at the end of the step.
    SecondStep(PoolOptions),
    /// One page laid out by the offline [`planner`](crate::memory::planner), which knows the whole trace in
    /// advance. It is the reference for the strategies, which see one request at a time.
    Planned,
}

/// A setting with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Name in tables.
    pub name: &'static str,
    /// Its setting.
    pub setting: Setting,
}

/// Returns every contender: the offline planner, each strategy in one page, then the pools that grow.
pub fn contenders() -> Vec<Contender> {
    let alone =
        Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Whole | Kind::Caching | Kind::Learned));
    let mut all = vec![Contender { name: "offline-planner", setting: Setting::Planned }];
    all.extend(alone.map(|kind| Contender { name: kind.name(), setting: Setting::OnePage(kind) }));
    let grow = PoolOptions { max_page: u64::MAX / 2, ..PoolOptions::default() };
    let pools = [
        ("bins-doubling", grow),
        ("bins-64MiB-pages", PoolOptions { growth: Growth::Fixed(64 << 20), ..grow }),
        ("pytorch", PoolOptions::pytorch()),
        ("buffer-per-tensor", PoolOptions { max_page: u64::MAX / 2, ..PoolOptions::one_buffer_per_tensor() }),
    ];
    all.extend(pools.map(|(name, options)| Contender { name, setting: Setting::Pages(options) }));
    let learned = PoolOptions { strategy: Kind::Learned, growth: Growth::Fixed(64 << 20), ..grow };
    all.push(Contender { name: "learned-second-step", setting: Setting::SecondStep(learned) });
    all
}

/// Measurements of a contender on a trace. Bytes, unless a field is documented otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Name of the contender.
    pub name: &'static str,
    /// Peak of live requested bytes; failed requests do not count.
    pub peak_live: u64,
    /// Peak of reserved bytes; see [`Setting`].
    pub peak_reserved: u64,
    /// `peak_reserved` divided by the trace's lower bound.
    pub ratio: f64,
    /// Share of the reserved bytes that was not allocated when `peak_live` was reached, 0 to 1.
    pub fragmentation: f64,
    /// Bytes of padding in live blocks at that moment.
    pub padding: u64,
    /// Number of failed requests; 0 unless a capacity is given. `None` if the planner found no layout within
    /// the capacity, because a plan contains either all blocks or none.
    pub failed: Option<u64>,
    /// Pages created in the whole replay, which would be allocations on a device.
    pub native_allocations: u64,
    /// Time per operation; `None` for the planner, which does no work while the trace runs.
    pub ns_per_op: Option<Time>,
}

/// Time of one allocation or free in nanoseconds, over batches of 16. With one page it is the time of the
/// strategy alone; with a pool that grows it is the time of the whole pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Runs `trace` through `contender`. `capacity` (bytes) limits the memory, as the size of the one page or as
/// the pool's cap, and requests may fail. Without it memory is as large as needed.
///
/// # Errors
/// [`Error::Pool`](crate::Error::Pool) if the setting is invalid, [`Error::Pack`](crate::Error::Pack) if the
/// trace cannot be planned.
pub fn replay(trace: &Trace, contender: Contender, capacity: Option<u64>) -> crate::Result<Outcome> {
    let bound = trace.lower_bound();
    let (options, times) = match contender.setting {
        Setting::Planned => return Ok(planned::outcome(trace, contender.name, capacity)?),
        Setting::OnePage(kind) => {
            let options = one_page(kind, capacity.map_or_else(|| smallest_page(trace, kind, bound), Ok)?);
            (options, time_strategy(trace, kind, options)?)
        }
        Setting::Pages(options) => {
            let options = PoolOptions { cap: capacity, ..options };
            (options, time_pool(trace, options)?)
        }
        Setting::SecondStep(options) => {
            let options = PoolOptions { cap: capacity, ..options };
            (options, time_learned(trace, options)?)
        }
    };
    let run = match contender.setting {
        Setting::SecondStep(_) => run_pool(trace, &mut warm(trace, options)?, false)?,
        _ => run(trace, options, false)?,
    };
    Ok(Outcome {
        name: contender.name,
        peak_live: run.peak_live,
        peak_reserved: run.peak_reserved,
        ratio: ratio(run.peak_reserved, bound),
        fragmentation: run.fragmentation,
        padding: run.padding,
        failed: Some(run.failed),
        native_allocations: run.native_allocations,
        ns_per_op: Some(percentiles(times)),
    })
}

fn ratio(reserved: u64, bound: u64) -> f64 {
    if bound == 0 { 1.0 } else { reserved as f64 / bound as f64 }
}

/// Location and lifetime of a block placed by a contender. Bytes; times are steps of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Number of the page.
    pub page: u32,
    /// First byte within the page.
    pub offset: u64,
    /// Size, padded.
    pub size: u64,
    /// Step at which it was allocated.
    pub from: usize,
    /// Step at which it was freed; if it is never freed, the number of steps.
    pub until: usize,
}

/// Returns where `contender` places each block of the trace, and the peak of the bytes that it reserves.
///
/// # Errors
/// [`Error::Pool`](crate::Error::Pool) if the setting is invalid, [`Error::Pack`](crate::Error::Pack) if the
/// trace cannot be planned.
pub fn place(trace: &Trace, contender: Contender) -> crate::Result<(Vec<Placed>, u64)> {
    let options = match contender.setting {
        Setting::Planned => return Ok(planned::layout(trace, None)?),
        Setting::OnePage(kind) => one_page(kind, smallest_page(trace, kind, trace.lower_bound())?),
        Setting::Pages(options) | Setting::SecondStep(options) => options,
    };
    let mut pool = match contender.setting {
        Setting::SecondStep(options) => warm(trace, options)?,
        _ => Pool::new(options, Offsets)?,
    };
    let mut live: Vec<Option<(Block, usize)>> = vec![None; trace.blocks.len()];
    let mut placed = Vec::new();
    for (time, step) in trace.steps.iter().enumerate() {
        match *step {
            Step::Alloc { id, size } => {
                let block = pool.alloc(Request::new(size, &trace.blocks[id], ""))?;
                let Block { page, offset, size, .. } = block;
                live[id] = Some((block, placed.len()));
                placed.push(Placed { page, offset, size, from: time, until: trace.steps.len() });
            }
            Step::Free { id } => {
                if let Some((block, index)) = live[id].take() {
                    pool.free(block)?;
                    placed[index].until = time;
                }
            }
        }
    }
    Ok((placed, pool.stats().reserved.peak))
}

/// Returns the options of a pool of exactly one page.
fn one_page(strategy: Kind, bytes: u64) -> PoolOptions {
    let granule = PoolOptions::default().granule;
    let bytes = bytes.max(granule) / granule * granule;
    PoolOptions { strategy, prealloc: bytes, cap: Some(bytes), max_page: bytes, ..PoolOptions::default() }
}

/// Returns the bytes of the smallest page, to 1/65536 of the bound, in which no request of the trace fails.
///
/// The page is found by bisection. A strategy need not be monotone in its capacity, so the result serves the
/// trace but is not proven to be the smallest.
fn smallest_page(trace: &Trace, kind: Kind, bound: u64) -> Result<u64, AllocError> {
    let granule = PoolOptions::default().granule;
    let serves = |bytes: u64| run(trace, one_page(kind, bytes), true).map(|run| run.failed == 0);
    let mut enough = bound.max(granule).next_multiple_of(granule);
    let mut short = 0;
    while !serves(enough)? {
        short = enough;
        enough += (enough / 8).max(granule).next_multiple_of(granule);
    }
    let step = (bound / 65536).max(granule).next_multiple_of(granule);
    while short > 0 && enough - short > step {
        let middle = (short + (enough - short) / 2).next_multiple_of(granule);
        if serves(middle)? { enough = middle } else { short = middle }
    }
    Ok(enough)
}

#[derive(Default)]
struct Run {
    peak_live: u64,
    peak_reserved: u64,
    fragmentation: f64,
    padding: u64,
    failed: u64,
    native_allocations: u64,
}

/// Runs the trace to its end or, with `until_failure`, to the first failure.
fn run(trace: &Trace, options: PoolOptions, until_failure: bool) -> Result<Run, AllocError> {
    run_pool(trace, &mut Pool::new(options, Offsets)?, until_failure)
}

/// Returns a pool that has run the trace as one step, with its peaks reset.
fn warm(trace: &Trace, options: PoolOptions) -> Result<Pool<Offsets>, AllocError> {
    let mut pool = Pool::new(options, Offsets)?;
    let mut live: Vec<Option<Block>> = vec![None; trace.blocks.len()];
    for step in &trace.steps {
        match *step {
            Step::Alloc { id, size } => live[id] = pool.alloc(Request::new(size, "", "")).ok(),
            Step::Free { id } => live[id].take().map_or(Ok(()), |block| pool.free(block))?,
        }
    }
    live.into_iter().flatten().try_for_each(|block| pool.free(block))?;
    pool.end_step()?;
    pool.reset_peaks();
    Ok(pool)
}

fn run_pool(trace: &Trace, pool: &mut Pool<Offsets>, until_failure: bool) -> Result<Run, AllocError> {
    let mut live: Vec<Option<Block>> = vec![None; trace.blocks.len()];
    let mut out = Run::default();
    for step in &trace.steps {
        match *step {
            Step::Alloc { id, size } => match pool.alloc(Request::new(size, "", "")) {
                Ok(block) => live[id] = Some(block),
                Err(AllocError::OutOfMemory(_) | AllocError::TooLarge { .. }) => out.failed += 1,
                Err(other) => return Err(other),
            },
            Step::Free { id } => {
                if let Some(block) = live[id].take() {
                    pool.free(block)?;
                }
            }
        }
        if until_failure && out.failed > 0 {
            break;
        }
        let stats = pool.stats();
        if stats.requested.current > out.peak_live {
            out.peak_live = stats.requested.current;
            out.fragmentation = stats.fragmentation();
            out.padding = stats.allocated.current.saturating_sub(stats.requested.current);
        }
    }
    out.peak_reserved = pool.stats().reserved.peak;
    out.native_allocations = pool.stats().segments.allocated;
    Ok(out)
}

/// Number of steps that are timed together; with smaller batches the cost of reading the clock would
/// dominate.
const BATCH: usize = 16;

/// Returns the nanoseconds per operation of each batch of steps, for a strategy alone.
fn time_strategy(trace: &Trace, kind: Kind, options: PoolOptions) -> Result<Vec<f64>, AllocError> {
    let mut strategy = kind.build(options.granule)?;
    strategy.add_page(0, options.prealloc, options.prealloc)?;
    let mut live = vec![None; trace.blocks.len()];
    Ok(time(trace, |step| match *step {
        // A failed request is timed like any other.
        Step::Alloc { id, size } => live[id] = strategy.alloc(size, 1).ok().map(|done| done.handle),
        Step::Free { id } => {
            let _ = live[id].take().map(|handle| strategy.free(handle));
        }
    }))
}

/// Returns the nanoseconds per operation of each batch for a pool, statistics and labels included.
fn time_pool(trace: &Trace, options: PoolOptions) -> Result<Vec<f64>, AllocError> {
    let mut pool = Pool::new(options, Offsets)?;
    let mut live = vec![None; trace.blocks.len()];
    Ok(time(trace, |step| match *step {
        Step::Alloc { id, size } => live[id] = pool.alloc(Request::new(size, "", "")).ok(),
        Step::Free { id } => {
            let _ = live[id].take().map(|block| pool.free(block));
        }
    }))
}

/// Returns the nanoseconds per operation of each batch for the strategy alone, in its second step.
fn time_learned(trace: &Trace, options: PoolOptions) -> Result<Vec<f64>, AllocError> {
    let mut strategy = options.strategy.build(options.granule)?;
    let bound = trace.lower_bound().max(options.granule);
    strategy.add_page(0, bound.saturating_mul(4), bound)?;
    let mut live = vec![None; trace.blocks.len()];
    let mut play = |step: &Step, strategy: &mut dyn Strategy| match *step {
        Step::Alloc { id, size } => live[id] = strategy.alloc(size, 1).ok().map(|done| done.handle),
        Step::Free { id } => {
            let _ = live[id].take().map(|handle| strategy.free(handle));
        }
    };
    trace.steps.iter().for_each(|step| play(step, strategy.as_mut()));
    (0..trace.blocks.len()).for_each(|id| play(&Step::Free { id }, strategy.as_mut()));
    strategy.end_step();
    Ok(time(trace, |step| play(step, strategy.as_mut())))
}

fn time(trace: &Trace, mut work: impl FnMut(&Step)) -> Vec<f64> {
    let batches = trace.steps.chunks(BATCH).map(|steps| {
        let start = Instant::now();
        steps.iter().for_each(&mut work);
        start.elapsed().as_nanos() as f64 / steps.len() as f64
    });
    batches.collect()
}

fn percentiles(mut times: Vec<f64>) -> Time {
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get(times.len().saturating_sub(1) * share / 100).copied().unwrap_or(0.0);
    Time { p50: at(50), p99: at(99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three blocks of 1 KiB, the middle one freed, then one of 2 KiB: best fit needs a fifth KiB.
    fn trace() -> Trace {
        let text = "id,lower,upper,size\na,0,9,1024\nb,1,4,1024\nc,2,9,1024\nd,4,9,2048\n";
        Trace::parse(text).expect("valid")
    }

    #[test]
    fn reserved_is_the_smallest_page_or_the_peak_of_the_pages() {
        let outcome = |name: &str, capacity| {
            let contender = contenders().into_iter().find(|c| c.name == name).expect("known");
            replay(&trace(), contender, capacity).expect("valid setting")
        };
        let best = outcome("best-fit", None);
        assert_eq!((best.peak_live, best.peak_reserved, best.failed), (4096, 5120, Some(0)));
        assert_eq!((best.ratio, best.native_allocations, best.padding), (1.25, 1, 0));
        assert!((best.fragmentation - 0.2).abs() < 1e-12, "{best:?}");

        let single = outcome("buffer-per-tensor", None);
        assert_eq!((single.ratio, single.native_allocations), (1.0, 4));
        assert_eq!(outcome("pytorch", None).peak_reserved, 2 << 20);

        let learned = outcome("learned-second-step", None);
        assert_eq!((learned.peak_reserved, learned.failed), (4096, Some(0)), "the plan of the first step");

        let short = outcome("best-fit", Some(4096));
        assert_eq!((short.failed, short.peak_live), (Some(1), 3072));

        let planned = outcome("offline-planner", None);
        assert_eq!((planned.ratio, planned.fragmentation, planned.ns_per_op), (1.0, 0.0, None));
        assert_eq!(outcome("offline-planner", Some(4096)).failed, Some(0));
        assert_eq!(outcome("offline-planner", Some(4095)).failed, None, "no plan fits");
    }

    #[test]
    fn the_planner_places_every_block_once_and_nothing_overlaps() {
        let planner = contenders()[0];
        let (placed, height) = place(&trace(), planner).expect("a valid trace");
        assert_eq!((placed.len(), height), (4, 4096));
        for (i, a) in placed.iter().enumerate() {
            for b in &placed[..i] {
                let together = a.from < b.until && b.from < a.until;
                assert!(
                    !together || a.offset + a.size <= b.offset || b.offset + b.size <= a.offset,
                    "{a:?} {b:?}"
                );
            }
        }
        assert_eq!(place(&Trace::default(), planner).expect("an empty trace").1, 0);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = contenders().iter().map(|contender| contender.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
