//! The least recomputation time for each of many target peaks. The targets do not depend on the requested
//! budget, so that a larger budget never gets a slower plan.

use std::ops::Range;
use std::sync::OnceLock;

use super::cost_model::{CostModel, Slot};
use super::script::Retention;
use super::search::Search;
use super::select::{Layers, Length, alike, every};
use crate::graph::Graph;
use crate::{parallel, progress};

/// One option to run the step.
#[derive(Clone, Debug)]
pub(in crate::compile) struct Point {
    /// How each forward result is stored.
    pub retention: Vec<Retention>,
    /// Maximum bytes alive at once within the step.
    pub peak: u64,
    /// Modelled time of recomputation and of copies of offloaded results, in seconds.
    pub again_s: f64,
}

/// The lowest target peak, as a fraction of the peak without recomputation.
const LOWEST: f64 = 0.15;
/// The same of networks with [`MANY`] results, which are deep, so that less is alive at once, and where results may be in host memory.
const LOWEST_WITH_RULES: f64 = 0.05;
/// Maximum number of script operations that are measured in total: a bound on time, the same on every
/// machine.
const MOST_WORK: u64 = 80_000_000;
/// The same bound per operation of the step: small steps need fewer.
const WORK: u64 = 240_000;
/// Minimum number of scripts that the search for a target may measure.
const SCRIPTS: u64 = 3_500;

/// The number of heights, targets included, at which solutions are looked for. At least one is between two targets.
const HEIGHTS: u64 = 96;

/// Results of which so many may be dropped that the search begins with groups of them.
const MANY: usize = 600;

/// Lengths of segments by which such a search also starts ([`every`]).
const LENGTHS: [Length; 5] =
    [Length::Layers(1), Length::Layers(2), Length::Layers(4), Length::Layers(8), Length::Root];

/// How many target peaks are searched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::compile) enum SearchEffort {
    /// All that the budget can use.
    All,
    /// A few about the budget, which take less time.
    Near,
}

/// Searches for many target peaks. Each is made when its result is first asked for, and kept.
#[derive(Debug)]
pub(super) struct Frontier {
    layers: Option<Layers>,
    /// Results that are alike, if there are so many that each alone takes too long to try.
    groups: Vec<Vec<usize>>,
    /// For such networks, what segments of the [`LENGTHS`] keep, and all that may be in host memory there: a search measures too few
    /// scripts to find these solutions itself.
    rules: Vec<Vec<Retention>>,
    /// The step without recomputation in the backward pass.
    start: Vec<Point>,
    /// The highest target first.
    rungs: Vec<Rung>,
    /// Script operations that the search for one target may measure.
    work: u64,
}

/// A target peak, and the solutions found for it. They depend on no higher target, which nobody may ask for.
#[derive(Debug)]
struct Rung {
    target: u64,
    /// By [`FOR_TARGET`], [`FROM_LOWER`] and [`BETWEEN`].
    found: [OnceLock<Vec<Point>>; 3],
}

/// What the search for a target finds.
const FOR_TARGET: usize = 0;
/// What is found from the best of lower targets, if that is faster.
const FROM_LOWER: usize = 1;
/// What keeps more of the best, at heights between a target and the next.
const BETWEEN: usize = 2;

impl Frontier {
    pub(super) fn new(model: &CostModel, graph: &Graph) -> Self {
        let operations = model.order.len().max(1) as u64;
        let work = (WORK * operations).min(MOST_WORK);
        let start = Search::new(model, 0, work);
        let rungs = (work / SCRIPTS / operations).clamp(6, 64);
        let mut groups = alike(model, graph);
        if groups.iter().map(Vec::len).sum::<usize>() <= MANY {
            groups.clear();
        }
        let lengths: &[Length] = if groups.is_empty() { &[] } else { &LENGTHS };
        let mut rules: Vec<_> = lengths.iter().map(|&length| every(model, graph, length)).collect();
        let kept = start.points.iter().map(|point| &point.retention).chain(&rules);
        let away = kept.filter_map(|rule| all_away(model, rule)).collect::<Vec<_>>();
        rules.extend(away);
        let lowest = if rules.is_empty() { LOWEST } else { LOWEST_WITH_RULES };
        // No choice has a lower peak than the floor.
        let (peak, floor) = (start.now.peak as f64, model.floor() as f64);
        let share = libm::pow((floor / peak).clamp(lowest, 1.0), 1.0 / rungs as f64);
        let target = |rung: u64| (peak * share.powi(rung as i32 + 1)) as u64;
        let rungs: Vec<_> =
            (0..rungs).map(|rung| Rung { target: target(rung), found: Default::default() }).collect();
        let work = work / rungs.len() as u64;
        Self { layers: Layers::of(model, graph), groups, rules, start: start.points, rungs, work }
    }

    /// The number of targets above `room` bytes.
    fn above(&self, room: u64) -> usize {
        self.rungs.partition_point(|rung| rung.target > room)
    }

    /// The targets about `room` bytes for the step's tensors, the most hopeful first: those within it, then those
    /// above it, because a search may end below its target.
    pub(super) fn near(&self, room: u64) -> impl Iterator<Item = Range<usize>> {
        let (all, first) = (self.rungs.len(), self.above(room));
        let pairs = [first, first + 2, first.saturating_sub(2)];
        pairs.into_iter().map(move |from| from.min(all.saturating_sub(2))..all.min(from + 2))
    }

    /// Points of some targets, from the fastest to the one that needs the fewest bytes. Each needs fewer bytes
    /// than all before it.
    pub(super) fn points(&self, model: &CostModel, range: Range<usize>) -> Vec<Point> {
        let missing = self.missing(range.clone(), FOR_TARGET);
        let task = progress::task("what to compute again", missing.len() as u64);
        let climb = |i: usize| {
            let Rung { target, found } = &self.rungs[missing[i]];
            found[FOR_TARGET].get_or_init(|| {
                Search::new(model, *target, self.work).run(self.layers.as_ref(), &self.groups, &self.rules)
            });
        };
        parallel::map_and_tell(missing.len(), climb, |climbed| task.done(climbed as u64));
        self.best(range, FOR_TARGET).into_iter().cloned().collect()
    }

    /// Points of the targets within `room` bytes and of the two above. Where the best within a target is of a lower one, a search
    /// continues from it; then, at heights between targets, more of the best is kept. More room has all points of less room.
    pub(super) fn refined(&self, model: &CostModel, room: u64) -> Vec<Point> {
        let all = self.above(room).saturating_sub(2)..self.rungs.len();
        self.points(model, all.clone());
        let search = |target: u64, from: &Point, work: u64| {
            Search::new(model, target, work).keeping_more(&from.retention)
        };
        let missing = self.missing(all.clone(), FROM_LOWER);
        let found = parallel::map(missing.len(), |i| {
            let Rung { target, found } = &self.rungs[missing[i]];
            let best = best_within(&self.best(missing[i]..all.end, FOR_TARGET), *target)?;
            let own = found[FOR_TARGET].get()?.iter().any(|point| point.retention == best.retention);
            (!own).then(|| search(*target, best, self.work).improved())
        });
        for (rung, found) in missing.into_iter().zip(found) {
            self.rungs[rung].found[FROM_LOWER].get_or_init(|| found.unwrap_or_default());
        }
        let missing = self.missing(all.clone(), BETWEEN);
        let steps = (HEIGHTS / self.rungs.len() as u64).max(2);
        let known = parallel::map(missing.len(), |i| self.best(missing[i]..all.end, FROM_LOWER));
        let heights = missing.iter().zip(&known).flat_map(|rung| (1..steps).map(move |step| (rung, step)));
        let heights: Vec<_> = heights.collect();
        let found = parallel::map(heights.len(), |i| {
            let ((&rung, known), step) = heights[i];
            let [from, to] = [self.rungs[rung].target, self.rungs.get(rung + 1)?.target];
            let height = from - (from - to) * step / steps;
            Some(search(height, best_within(known, height)?, self.work / steps).points)
        });
        for (rung, found) in missing.into_iter().zip(found.chunks(steps as usize - 1)) {
            let found = found.iter().flatten().flatten();
            self.rungs[rung].found[BETWEEN].get_or_init(|| found.cloned().collect());
        }
        self.best(all, BETWEEN).into_iter().cloned().collect()
    }

    /// The targets that have not been searched for yet in this way.
    fn missing(&self, range: Range<usize>, search: usize) -> Vec<usize> {
        range.filter(|&rung| self.rungs[rung].found[search].get().is_none()).collect()
    }

    /// The best points that the searches up to `last` found for some targets.
    fn best(&self, range: Range<usize>, last: usize) -> Vec<&Point> {
        let found = self.rungs[range].iter().flat_map(|rung| &rung.found[..=last]);
        pareto(self.start.iter().chain(found.filter_map(OnceLock::get).flatten()))
    }
}

/// The fastest of points in the order of [`pareto`] that needs at most `target` bytes.
fn best_within<'a>(points: &[&'a Point], target: u64) -> Option<&'a Point> {
    points.iter().find(|point| point.peak <= target).copied()
}

/// The same choice with all kept results in host memory that may be there; `None` if there are none.
fn all_away(model: &CostModel, rule: &[Retention]) -> Option<Vec<Retention>> {
    let away = |(slot, kept): (&Slot, &Retention)| match slot.away_s {
        Some(_) if *kept == Retention::Save => Retention::Offload,
        _ => *kept,
    };
    let all: Vec<Retention> = model.slots.iter().zip(rule).map(away).collect();
    (all != rule).then_some(all)
}

/// Drops points that another point beats in both time and peak.
fn pareto<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<&'a Point> {
    let order = |a: &Point, b: &Point| a.again_s.total_cmp(&b.again_s).then(a.peak.cmp(&b.peak));
    let mut points: Vec<_> = points.collect();
    points.sort_by(|a, b| order(a, b).then_with(|| a.retention.cmp(&b.retention)));
    let mut best = u64::MAX;
    points.retain(|point| {
        let better = point.peak < best;
        best = best.min(point.peak);
        better
    });
    points
}
