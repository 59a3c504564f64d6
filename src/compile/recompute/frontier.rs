//! The least recomputation time for each of many target peaks. The targets do not depend on the requested
//! budget, so that a larger budget never gets a slower plan.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cost_model::CostModel;
use super::script::Retention;
use super::search::Search;
use super::select::Layers;
use crate::progress;

/// One option to run the step.
#[derive(Clone, Debug)]
pub(in crate::compile) struct Point {
    /// How each forward result is stored.
    pub retention: Vec<Retention>,
    /// Maximum bytes alive at once within the step.
    pub peak: u64,
    /// Modelled recomputation time, in seconds.
    pub again_s: f64,
}

/// The lowest target peak, as a fraction of the peak without recomputation.
const LOWEST: f64 = 0.15;
/// Maximum number of script operations that are measured in total: a bound on time, the same on every
/// machine.
const MOST_WORK: u64 = 80_000_000;
/// The same bound per operation of the step: small steps need fewer.
const WORK: u64 = 240_000;
/// Minimum number of scripts that the search for a target may measure.
const SCRIPTS: u64 = 3_500;

/// With [`SearchEffort::Few`], only one in this many targets is searched.
const APART: u64 = 4;

/// How many target peaks are searched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::compile) enum SearchEffort {
    All,
    /// A few, which takes less time.
    Few,
}

/// Points from the fastest to the one that needs the fewest bytes. Each needs fewer bytes than all before it.
pub(super) fn frontier(model: &CostModel, layers: Option<&Layers>, effort: SearchEffort) -> Vec<Point> {
    let operations = model.order.len().max(1) as u64;
    let work = (WORK * operations).min(MOST_WORK);
    let start = Search::new(model, 0, work);
    let rungs = (work / SCRIPTS / operations).clamp(6, 64);
    let apart = if effort == SearchEffort::All { 1 } else { APART };
    let share = LOWEST.powf(1.0 / rungs as f64);
    let target = |rung: u64| (start.now.peak as f64 * share.powi(rung as i32 + 1)) as u64;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8) as u64;
    let climbed = AtomicU64::new(0);
    let climb = |thread: u64, tell: &dyn Fn(u64)| -> Vec<Point> {
        let own =
            (0..rungs / apart).filter(|rung| rung % threads == thread).map(|rung| (rung + 1) * apart - 1);
        let one = |rung: u64| {
            let points = Search::new(model, target(rung), work / rungs).run(layers);
            tell(climbed.fetch_add(1, Ordering::Relaxed) + 1);
            points
        };
        own.flat_map(one).collect()
    };
    let task = progress::task("what to compute again", rungs / apart);
    let mine = |climbed: u64| task.done(climbed);
    let mut points = start.points;
    let climb = &climb;
    std::thread::scope(|scope| {
        let spawn = |thread| {
            let worker = std::thread::Builder::new().spawn_scoped(scope, move || climb(thread, &|_| ()));
            worker.map_err(|_| thread)
        };
        let parts: Vec<_> = (1..threads).map(spawn).collect();
        // Only this thread reports progress.
        points.extend(climb(0, &mine));
        for part in parts {
            points.extend(match part {
                // Propagates a panic of a worker thread.
                Ok(worker) => worker.join().expect("the search does not panic"),
                // The system gives no more threads.
                Err(thread) => climb(thread, &mine),
            });
        }
    });
    pareto(points)
}

/// Drops points that another point beats in both time and peak.
pub(super) fn pareto(mut points: Vec<Point>) -> Vec<Point> {
    let order = |a: &Point, b: &Point| a.again_s.total_cmp(&b.again_s).then(a.peak.cmp(&b.peak));
    points.sort_by(|a, b| order(a, b).then_with(|| a.retention.cmp(&b.retention)));
    let mut best = u64::MAX;
    points.retain(|point| {
        let better = point.peak < best;
        best = best.min(point.peak);
        better
    });
    points
}
