//! The least recomputation time for each of many target peaks. The targets do not depend on the requested
//! budget, so that a larger budget never gets a slower plan.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::cost_model::{CostModel, Slot};
use super::script::Retention;
use super::search::{Choices, Search};
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
/// Units of work of all searches, without those between targets: a bound on time, the same on every machine.
const MOST_WORK: u64 = 160_000_000;
/// The same bound, in sweeps, which measure each choice once: small steps need less.
const WORK: u64 = 40_000;
/// Number of sweeps that the search for a target has at least, if there are few targets.
const SWEEPS: u64 = 40;

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
    choices: Choices,
    /// The step without recomputation in the backward pass.
    start: Vec<Point>,
    /// The highest target first.
    rungs: Vec<Rung>,
    /// Units of work for one target.
    work: u64,
}

/// A target peak, and the solutions found for it. They depend on no higher target, which nobody may ask for.
#[derive(Debug)]
struct Rung {
    target: u64,
    /// What the search for the target finds first, then in each of the passes, and last what keeps more of the best at heights
    /// between the target and the next.
    found: [OnceLock<Vec<Point>>; 2 + PASSES],
}

/// The name of the searches' progress.
const TASK: &str = "what to compute again";

/// Number of times that each search goes on, from the best of lower targets if that is faster.
const PASSES: usize = 8;
const BETWEEN: usize = PASSES + 1;
/// Number of passes in a row that find nothing better for a target before it has no more.
const IDLE: usize = 2;
/// The part of a target's work that comes before the passes: 3/10.
const FIRST: [u64; 2] = [3, 10];

impl Frontier {
    pub(super) fn new(model: &CostModel, graph: &Graph) -> Self {
        let choices = Choices::of(model);
        let mut search = Search::new(model, &choices, 0);
        let peak = search.now().peak;
        let start = search.go_on(None, None, 0, 0);
        let sweep = search.sweep().max(1);
        let work = (WORK * sweep).min(MOST_WORK);
        let rungs = (work / (SWEEPS * sweep)).clamp(6, 64);
        let mut groups = alike(model, graph);
        if groups.iter().map(Vec::len).sum::<usize>() <= MANY {
            groups.clear();
        }
        let lengths: &[Length] = if groups.is_empty() { &[] } else { &LENGTHS };
        let mut rules: Vec<_> = lengths.iter().map(|&length| every(model, graph, length)).collect();
        let kept = start.iter().map(|point| &point.retention).chain(&rules);
        let away = kept.filter_map(|rule| all_away(model, rule)).collect::<Vec<_>>();
        rules.extend(away);
        let lowest = if rules.is_empty() { LOWEST } else { LOWEST_WITH_RULES };
        // No choice has a lower peak than the floor.
        let (peak, floor) = (peak as f64, model.floor() as f64);
        let share = libm::pow((floor / peak).clamp(lowest, 1.0), 1.0 / rungs as f64);
        let target = |rung: u64| (peak * share.powi(rung as i32 + 1)) as u64;
        let work = work / rungs;
        let rungs: Vec<_> =
            (0..rungs).map(|rung| Rung { target: target(rung), found: Default::default() }).collect();
        Self { layers: Layers::of(model, graph), groups, rules, choices, start, rungs, work }
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
        let missing = self.missing(range.clone(), 0);
        let task = progress::task(TASK, missing.len() as u64);
        self.climb(model, &missing, &|climbed| task.done(climbed as u64));
        pareto(self.found(range, 0).cloned().collect())
    }

    /// Searches for some targets, each by itself, and reports how many are done.
    fn climb(&self, model: &CostModel, missing: &[usize], report: &dyn Fn(usize)) {
        let climb = |i: usize| {
            let Rung { target, found } = &self.rungs[missing[i]];
            let work = self.work * FIRST[0] / FIRST[1];
            found[0].get_or_init(|| {
                let mut search = Search::new(model, &self.choices, *target);
                pareto(search.run(self.layers.as_ref(), &self.groups, &self.rules, work))
            });
        };
        parallel::map_and_tell(missing.len(), climb, report);
    }

    /// Points of the targets within `room` bytes and of the two above. Each search goes on several times from the best that is known
    /// for its target or a lower one; then, at heights between targets, more of the best is kept. More room has all points of less
    /// room.
    pub(super) fn refined(&self, model: &CostModel, room: u64) -> Vec<Point> {
        let all = self.above(room).saturating_sub(2)..self.rungs.len();
        let [first, missing] = [0, BETWEEN].map(|search| self.missing(all.clone(), search));
        let task = progress::task(TASK, (first.len() + missing.len() * BETWEEN) as u64);
        self.climb(model, &first, &|climbed| task.done(climbed as u64));
        let search = |&rung: &usize| Mutex::new(Search::new(model, &self.choices, self.rungs[rung].target));
        let searches: Vec<Mutex<Search>> = missing.iter().map(search).collect();
        let each = |work: &(dyn Fn(usize, &mut Search) + Sync), pass: usize| {
            let go_on = |i: usize| {
                work(missing[i], &mut searches[i].lock().unwrap_or_else(PoisonError::into_inner));
            };
            let done = first.len() + (pass - 1) * missing.len();
            parallel::map_and_tell(missing.len(), go_on, |more| task.done((done + more) as u64));
        };
        let work = self.work * (FIRST[1] - FIRST[0]) / FIRST[1] / PASSES as u64;
        for pass in 1..=PASSES {
            let go_on = |rung: usize, search: &mut Search| {
                let Rung { target, found } = &self.rungs[rung];
                let known = |ago: usize| {
                    let last = pass.checked_sub(ago)?;
                    let best = |range: Range<usize>| fastest(self.found(range, last), *target);
                    Some([best(rung..rung + 1), best(rung + 1..all.end)])
                };
                let [own, lower] = known(1).unwrap_or_default();
                let is_idle = known(1 + IDLE).is_some_and(|[o, l]| same(o, own) && same(l, lower));
                let tried = known(2).is_some_and(|[_, before]| same(before, lower));
                let lower = lower.filter(|_| !tried);
                found[pass].get_or_init(|| match is_idle {
                    true => Vec::new(),
                    false => pareto(search.go_on(own, lower, pass, work)),
                });
            };
            each(&go_on, pass);
        }
        let steps = (HEIGHTS / self.rungs.len() as u64).max(2);
        let between = |rung: usize, search: &mut Search| {
            let Rung { target, found } = &self.rungs[rung];
            let space = self.rungs.get(rung + 1).map_or(0, |next| target - next.target);
            let mut points = Vec::new();
            for step in (1..steps).filter(|_| space > 0) {
                let height = target - space * step / steps;
                search.aim(height);
                let best = fastest(self.found(rung..all.end, PASSES), height);
                points.extend(search.go_on(None, best, BETWEEN, self.work / steps / 2));
            }
            found[BETWEEN].get_or_init(|| pareto(points));
        };
        each(&between, BETWEEN);
        pareto(self.found(all, BETWEEN).cloned().collect())
    }

    /// The targets that have not been searched for yet in this way.
    fn missing(&self, range: Range<usize>, search: usize) -> Vec<usize> {
        range.filter(|&rung| self.rungs[rung].found[search].get().is_none()).collect()
    }

    /// What the searches for some targets found up to `last`, and the step without recomputation.
    fn found(&self, range: Range<usize>, last: usize) -> impl Iterator<Item = &Point> {
        let found = self.rungs[range].iter().flat_map(move |rung| &rung.found[..=last]);
        self.start.iter().chain(found.filter_map(OnceLock::get).flatten())
    }
}

/// The order of points that are compared: the fastest first.
fn order(a: &Point, b: &Point) -> Ordering {
    let time = a.again_s.total_cmp(&b.again_s);
    time.then(a.peak.cmp(&b.peak)).then_with(|| a.retention.cmp(&b.retention))
}

/// The fastest of the points that need at most `target` bytes.
fn fastest<'a>(points: impl Iterator<Item = &'a Point>, target: u64) -> Option<&'a Point> {
    points.filter(|point| point.peak <= target).min_by(|a, b| order(a, b))
}

/// Whether these are the same choice.
fn same(some: Option<&Point>, other: Option<&Point>) -> bool {
    some.map(|point| &point.retention) == other.map(|point| &point.retention)
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
fn pareto(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_unstable_by(order);
    let mut best = u64::MAX;
    points.retain(|point| {
        let better = point.peak < best;
        best = best.min(point.peak);
        better
    });
    points
}
