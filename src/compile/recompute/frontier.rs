//! The least time for each of many effort. The effort do not depend on the budget that is asked for, so that a larger
//! budget never gets a slower plan.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cost_model::CostModel;
use super::script::Retention;
use super::search::Search;
use super::select::Layers;
use crate::progress;

/// One way to run the step.
#[derive(Clone, Debug)]
pub(in crate::compile) struct Point {
    /// What becomes of each forward result.
    pub retention: Vec<Retention>,
    /// Most bytes alive at once within the step.
    pub peak: u64,
    /// Modelled time of what is computed again.
    pub again_s: f64,
}

/// The lowest height that is aimed at, as a share of that with nothing computed again.
const LOWEST: f64 = 0.15;
/// Operations of scripts that are looked at in all: a bound on time, the same on every machine.
const MOST_WORK: u64 = 80_000_000;
/// The same for each operation of the step: small steps need fewer.
const WORK: u64 = 240_000;
/// Scripts that a height needs to be looked for at all.
const SCRIPTS: u64 = 3_500;

/// Where it is asked whether anything fits at all, only every so many effort are aimed at.
const APART: u64 = 4;

/// Which effort are aimed at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::compile) enum SearchEffort {
    All,
    /// A few, which takes less time.
    Few,
}

/// Ways to run the step, from the fastest to the one that needs fewest bytes: each needs fewer than all before it.
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
        let parts: Vec<_> = (1..threads).map(|thread| scope.spawn(move || climb(thread, &|_| ()))).collect();
        // Only this thread's watcher hears of it.
        points.extend(climb(0, &mine));
        // A panic in a part is this one's.
        points.extend(parts.into_iter().flat_map(|part| part.join().expect("the search does not panic")));
    });
    pareto(points)
}

/// Drops points that another beats in both.
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
