//! The search for results to keep under a target peak: greedy first, then parts of the solution are reset and
//! searched again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use super::chain::Chain;
use super::cost_model::CostModel;
use super::frontier::Point;
use super::measure::{Measure, Meter};
use super::script::Retention::{self, Offload, RecomputeOnce, RecomputePerUse};
use super::script::Writer;
use super::select::{Layers, candidates};
use crate::random;

/// Number of consecutive failed improvements that ends the search.
const PATIENCE: u32 = 40;

/// A rule, or a chain's checkpoints, that takes this many times as long as the greedy choice is not improved.
const SLOW: f64 = 2.0;

/// A search for the least recomputation time under one target peak.
pub(super) struct Search<'a> {
    model: &'a CostModel,
    writer: Writer<'a>,
    meter: Meter<'a>,
    /// Slots that may be dropped, in the order of the forward pass; those of the parts of a batch together.
    pub(super) candidates: Vec<Vec<usize>>,
    /// The initial choice: slots that only the forward pass reads are recomputed where needed; all others are
    /// kept.
    start: Vec<Retention>,
    retention: Vec<Retention>,
    /// The choices that a trial replaces.
    replaced: Vec<Retention>,
    pub(super) now: Measure,
    /// The target peak, in bytes.
    target: u64,
    /// Script steps that may still be measured: a bound on time, the same on every machine.
    work: u64,
    thrown: u64,
    /// Solutions found so far.
    pub(super) points: Vec<Point>,
}

/// A choice for some slots, and the excess that it removes per second of added time.
#[derive(Clone, Copy, PartialEq)]
struct Flip<'s> {
    worth: f64,
    slots: &'s [usize],
    choice: Retention,
}

impl Eq for Flip<'_> {}

impl PartialOrd for Flip<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flip<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.worth
            .total_cmp(&other.worth)
            .then(other.slots.cmp(self.slots))
            .then(other.choice.cmp(&self.choice))
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(model: &'a CostModel, target: u64, work: u64) -> Self {
        let candidates = candidates(model);
        let read_back = model.read_back();
        let mut start = vec![Retention::Save; model.slots.len()];
        candidates.iter().filter(|&&slot| !read_back[slot]).for_each(|&slot| start[slot] = RecomputeOnce);
        let candidates = of_all_parts(model, candidates);
        let mut search = Self {
            model,
            writer: Writer::new(model),
            meter: Meter::new(model),
            candidates,
            retention: start.clone(),
            replaced: Vec::new(),
            start,
            now: Measure::default(),
            target,
            work,
            thrown: 0,
            points: Vec::new(),
        };
        search.now = search.measure().unwrap_or_default();
        search.note();
        search
    }

    /// Greedy search, cleanup, then improvement while there is work left. With `groups`, of large networks, the greedy search
    /// drops whole groups first; `rules` are solutions from which it also starts, with half of the work.
    pub(super) fn run(
        mut self,
        layers: Option<&Layers>,
        groups: &[Vec<usize>],
        rules: &[Vec<Retention>],
    ) -> Vec<Point> {
        let all = self.candidates.clone();
        let later = if rules.is_empty() { 0 } else { self.work / 2 };
        self.work -= later;
        self.lower(groups.iter().map(Vec::as_slice), &[RecomputeOnce, Offload], true);
        self.lower_each(&all, true);
        self.tidy(&all);
        self.note();
        self.work += later;
        self.try_rules(rules, &all);
        if let Some(layers) = layers {
            self.try_chain(layers, &all);
        }
        self.improved()
    }

    /// Continues from a solution, and keeps more results where the target has room.
    pub(super) fn keeping_more(mut self, retention: &[Retention]) -> Self {
        self.retention = retention.to_vec();
        self.now = self.measure().unwrap_or(self.now);
        self.tidy(&self.candidates.clone());
        self.note();
        self
    }

    /// All solutions found, after improvement while there is work left: half of it for choices that are the same for all parts of a
    /// batch, of which the first may have more room.
    pub(super) fn improved(mut self) -> Vec<Point> {
        let each: Vec<Vec<usize>> = self.candidates.iter().flatten().map(|&slot| vec![slot]).collect();
        if each.len() > self.candidates.len() {
            let later = self.work / 2;
            self.work -= later;
            self.improve();
            self.note();
            self.work += later;
            self.tidy(&each);
            self.candidates = each;
        }
        self.improve();
        self.note();
        self.points
    }

    /// Notes the solution of each rule, and restarts from the one closest to the target; of equally close ones, the fastest.
    fn try_rules(&mut self, rules: &[Vec<Retention>], all: &[Vec<usize>]) {
        let (other, before) = (self.retention.clone(), self.now);
        let mut measures = Vec::new();
        for rule in rules {
            self.retention.clone_from(rule);
            if let Some(measure) = self.measure() {
                self.now = measure;
                self.note();
                measures.push((measure, rule));
            }
        }
        (self.retention, self.now) = (other, before);
        let order = |a: &Measure, b: &Measure| a.excess.cmp(&b.excess).then(a.again_s.total_cmp(&b.again_s));
        if let Some((_, rule)) = measures.into_iter().min_by(|(a, _), (b, _)| order(a, b)) {
            self.restart(rule.clone(), all);
        }
    }

    /// Restarts from the optimal checkpoints of the chain.
    fn try_chain(&mut self, layers: &Layers, all: &[Vec<usize>]) {
        // What the reversal of a layer takes besides the inputs: the peak with all of them kept, without them.
        let inputs: u64 = layers.stages.iter().map(|stage| stage.bytes).sum();
        let kept = layers.retention(&Chain::new(&layers.stages, inputs), &self.start);
        let before = std::mem::replace(&mut self.retention, kept);
        let within = self.measure().map(|all| all.peak.saturating_sub(inputs));
        self.retention = before;
        if let Some(room) = within.and_then(|within| self.target.checked_sub(within)) {
            self.restart(layers.retention(&Chain::new(&layers.stages, room), &self.start), all);
        }
    }

    /// Continues from another solution if that is better.
    fn restart(&mut self, retention: Vec<Retention>, all: &[Vec<usize>]) {
        let (other, before) = (std::mem::replace(&mut self.retention, retention), self.now);
        // Much slower than what there is, it will not catch up.
        let measure = self.measure().filter(|raw| before.excess > 0 || raw.again_s < SLOW * before.again_s);
        if let Some(measure) = measure {
            self.now = measure;
            self.lower_each(all, false);
            self.tidy(all);
            self.note();
        }
        if !self.better(&before) {
            self.retention = other;
            self.now = before;
        }
    }

    /// Whether the solution is closer to the target than `before`, or as close in less time.
    fn better(&self, before: &Measure) -> bool {
        (self.now.excess, self.now.again_s) < (before.excess, before.again_s)
    }

    fn note(&mut self) {
        let Measure { peak, again_s, .. } = self.now;
        self.points.push(Point { retention: self.retention.clone(), peak, again_s });
    }

    /// `None` if a dropped slot cannot be recomputed.
    fn measure(&mut self) -> Option<Measure> {
        self.measure_up_to(u64::MAX)
    }

    /// `None` also if the excess is more than `most`.
    fn measure_up_to(&mut self, most: u64) -> Option<Measure> {
        let script = self.writer.write(&self.retention).ok()?;
        self.work = self.work.saturating_sub(script.len() as u64);
        self.meter.measure(script, self.target, most)
    }

    /// Measures another choice for some slots, and keeps theirs.
    fn with(&mut self, slots: &[usize], choice: Retention, most: u64) -> Option<Measure> {
        self.replaced.clear();
        self.replaced.extend(slots.iter().map(|&slot| self.retention[slot]));
        slots.iter().for_each(|&slot| self.retention[slot] = choice);
        let measure = self.measure_up_to(most);
        slots.iter().zip(&self.replaced).for_each(|(&slot, &before)| self.retention[slot] = before);
        measure
    }

    /// [`Search::lower`] by one of the candidates `some` at a time.
    fn lower_each(&mut self, some: &[Vec<usize>], note: bool) {
        self.lower(some.iter().map(Vec::as_slice), &[RecomputeOnce, RecomputePerUse, Offload], note);
    }

    /// Drops the slots of one of `parts` at a time until the peak is within the target, or nothing helps.
    fn lower<'s>(
        &mut self,
        parts: impl Iterator<Item = &'s [usize]> + Clone,
        choices: &[Retention],
        note: bool,
    ) {
        let mut heap = BinaryHeap::new();
        let mut hopeful = true;
        while self.now.excess > 0 && self.work > 0 {
            if heap.is_empty() {
                if !hopeful {
                    return;
                }
                hopeful = false;
                let flips =
                    parts.clone().flat_map(|slots| choices.iter().map(move |&choice| (slots, choice)));
                heap.extend(flips.filter_map(|(slots, choice)| self.hope(slots, choice)));
            }
            let Some((flip, measure)) = self.best(&mut heap) else { continue };
            hopeful = true;
            flip.slots.iter().for_each(|&slot| self.retention[slot] = flip.choice);
            self.now = measure;
            if note {
                self.note();
            }
        }
    }

    /// Whether the choice may save more bytes than the present one of any of the slots: a result that was copied back stays in memory, one
    /// that is recomputed for each reader does not.
    fn drops(&self, slots: &[usize], choice: Retention) -> bool {
        let more = |kept: Retention| choice > kept || (kept == Offload && choice == RecomputePerUse);
        slots.iter().any(|&slot| more(self.retention[slot]))
    }

    /// An optimistic estimate of a change's worth; `None` also if some of the slots must not be offloaded, and the choice does.
    fn hope<'s>(&self, slots: &'s [usize], choice: Retention) -> Option<Flip<'s>> {
        let (mut bytes, mut seconds) = (0, 0.0);
        for slot in slots.iter().map(|&slot| self.model.slots[slot]) {
            bytes += slot.bytes;
            let again = self.model.works[slot.producer? as usize].seconds;
            seconds += if choice == Offload { slot.away_s? } else { again };
        }
        let times = if choice == RecomputePerUse { 0.5 } else { 1.0 };
        let worth = times * bytes as f64 * self.now.over as f64 / seconds.max(1e-9);
        self.drops(slots, choice).then_some(Flip { worth, slots, choice })
    }

    fn worth<'s>(&mut self, slots: &'s [usize], choice: Retention) -> Option<(Flip<'s>, Measure)> {
        if !self.drops(slots, choice) {
            return None;
        }
        let measure = self.with(slots, choice, self.now.excess.checked_sub(1)?)?;
        let less = self.now.excess - measure.excess;
        let seconds = (measure.again_s - self.now.again_s).max(1e-9);
        Some((Flip { worth: less as f64 / seconds, slots, choice }, measure))
    }

    /// The best change. Worths in the heap are stale: the first change with a current worth that still beats
    /// the next one is taken.
    fn best<'s>(&mut self, heap: &mut BinaryHeap<Flip<'s>>) -> Option<(Flip<'s>, Measure)> {
        while let Some(stale) = heap.pop() {
            let Some((flip, measure)) = self.worth(stale.slots, stale.choice) else { continue };
            if heap.peek().is_none_or(|next| flip.worth >= next.worth) {
                return Some((flip, measure));
            }
            heap.push(flip);
        }
        None
    }

    /// Keeps slots again that need not be dropped, the most expensive first.
    fn tidy(&mut self, some: &[Vec<usize>]) {
        let model = self.model;
        let seconds =
            |slots: &[usize]| model.slots[slots[0]].producer.map_or(0.0, |n| model.works[n as usize].seconds);
        let kept = |search: &Self, slots: &[usize]| {
            slots.iter().map(|&slot| search.retention[slot]).max().unwrap_or(Retention::Save)
        };
        let dropped = some.iter().filter(|slots| kept(self, slots) != Retention::Save);
        let mut dropped: Vec<&[usize]> = dropped.map(Vec::as_slice).collect();
        dropped.sort_by(|&a, &b| seconds(b).total_cmp(&seconds(a)).then(a.cmp(b)));
        for slots in dropped {
            let (kept, known) = (kept(self, slots), &model.slots[slots[0]]);
            // A slot recomputed for each reader may be fused with that reader.
            let more = |choice: &Retention| *choice < kept || (*choice == RecomputePerUse && known.between);
            let choices = [Retention::Save, RecomputeOnce, RecomputePerUse].into_iter().take_while(more);
            let away = (known.away_s.is_some() && kept != Offload).then_some(Offload);
            for choice in choices.chain(away) {
                if self.work == 0 {
                    break;
                }
                let Some(measure) = self.with(slots, choice, self.now.excess) else { continue };
                if measure.again_s < self.now.again_s {
                    slots.iter().for_each(|&slot| self.retention[slot] = choice);
                    self.now = measure;
                    break;
                }
            }
        }
    }

    /// Resets the choices of a few neighbouring slots and searches them again; keeps the better solution.
    fn improve(&mut self) {
        let count = self.candidates.len();
        let mut failures = 0;
        while count > 0 && self.work > 0 && failures < PATIENCE {
            let width = 4 + self.dice(20) as usize;
            let mut part = self.neighbours(width);
            if self.dice(2) == 0 {
                part.extend(self.neighbours(width / 2));
            }
            let (retention, before) = (self.retention.clone(), self.now);
            part.iter().flatten().for_each(|&slot| self.retention[slot] = self.start[slot]);
            self.now = self.measure().unwrap_or(before);
            self.lower_each(&part, false);
            self.tidy(&part);
            if self.better(&before) {
                failures = 0;
                self.note();
            } else {
                failures += 1;
                self.retention = retention;
                self.now = before;
            }
        }
    }

    fn neighbours(&mut self, width: usize) -> Vec<Vec<usize>> {
        let count = self.candidates.len();
        let from = self.dice(count as u64) as usize;
        self.candidates[from..count.min(from + width)].to_vec()
    }

    fn dice(&mut self, below: u64) -> u64 {
        self.thrown += 1;
        random::bits(0x5eed, self.thrown) % below.max(1)
    }
}

/// Slots, those that hold the same result for different parts of a batch together.
fn of_all_parts(model: &CostModel, slots: Vec<usize>) -> Vec<Vec<usize>> {
    let mut together: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for slot in slots {
        together.entry(model.slots[slot].first.map_or(slot, |first| first as usize)).or_default().push(slot);
    }
    together.into_values().collect()
}
