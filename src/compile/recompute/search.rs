//! The search for results to keep under a target peak: greedy first, then parts of the solution are reset and
//! searched again.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::cost_model::CostModel;
use super::frontier::Point;
use super::script::Retention::{self, Offload, RecomputeOnce, RecomputePerUse};
use super::select::{Layers, candidates};
use super::timeline::{Measure, Outcome, Timeline};
use crate::random;

/// Number of consecutive failed improvements that ends the search.
const PATIENCE: u32 = 100;

/// How much more time than the best a solution may take that the improvement goes on from, as a fraction. It falls to nothing as the
/// work is done.
const SLACK: f64 = 0.03;

/// A rule, or a chain's checkpoints, that takes this many times as long as the greedy choice is not improved.
const SLOW: f64 = 2.0;

/// Units of work of writing a step of a whole script anew.
const STEP: u64 = 4;

/// What searches choose from.
#[derive(Debug)]
pub(super) struct Choices {
    /// Slots that may be dropped, in the order of the forward pass.
    each: Vec<Vec<usize>>,
    /// The same, those of the parts of a batch together.
    pub(super) together: Vec<Vec<usize>>,
    /// The initial choice: slots that only the forward pass reads are recomputed where needed; all others are
    /// kept.
    start: Vec<Retention>,
}

impl Choices {
    pub(super) fn of(model: &CostModel) -> Self {
        let candidates = candidates(model);
        let read_back = model.read_back();
        let mut start = vec![Retention::Save; model.slots.len()];
        candidates.iter().filter(|&&slot| !read_back[slot]).for_each(|&slot| start[slot] = RecomputeOnce);
        let together = of_all_parts(model, &candidates);
        Self { each: candidates.into_iter().map(|slot| vec![slot]).collect(), together, start }
    }
}

/// A search for the least recomputation time under one target peak.
pub(super) struct Search<'a> {
    model: &'a CostModel,
    choices: &'a Choices,
    timeline: Timeline<'a>,
    /// Units of [`Timeline::work`] that are left: a bound on time, the same on every machine.
    work: u64,
    thrown: u64,
    /// Solutions found since they were last taken.
    points: Vec<Point>,
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
    pub(super) fn new(model: &'a CostModel, choices: &'a Choices, target: u64) -> Self {
        let mut search = Self {
            model,
            choices,
            timeline: Timeline::new(model, target, &choices.start),
            work: 0,
            thrown: 0,
            points: Vec::new(),
        };
        search.note();
        search
    }

    /// Greedy search, cleanup, then improvement while there is work left. With `groups`, of large networks, the greedy search
    /// drops whole groups first; `rules` are solutions from which it also starts, with half of the work.
    pub(super) fn run(
        &mut self,
        layers: Option<&Layers>,
        groups: &[Vec<usize>],
        rules: &[Vec<Retention>],
        work: u64,
    ) -> Vec<Point> {
        let all = &self.choices.together;
        let later = if rules.is_empty() { 0 } else { work / 2 };
        self.work = work - later;
        self.lower(groups.iter().map(Vec::as_slice), &[RecomputeOnce, Offload], true);
        self.lower_each(all, true);
        self.tidy(all);
        self.note();
        self.work += later;
        self.try_rules(rules, all);
        if let Some(layers) = layers {
            self.try_chain(layers, all);
        }
        self.improve_all();
        std::mem::take(&mut self.points)
    }

    /// Units of work of measuring each choice once.
    pub(super) fn sweep(&mut self) -> u64 {
        self.work = u64::MAX;
        for slots in &self.choices.together {
            self.with(slots, RecomputeOnce, u64::MAX, f64::INFINITY);
        }
        u64::MAX - self.work
    }

    /// Continues from the better of two solutions: what was found for this target, and for a lower one, where more results may be
    /// kept. The result depends on nothing else but `seed`, which draws what is reset.
    pub(super) fn go_on(
        &mut self,
        own: Option<&Point>,
        lower: Option<&Point>,
        seed: usize,
        work: u64,
    ) -> Vec<Point> {
        (self.work, self.thrown) = (work, (seed as u64) << 32);
        let mut least = f64::INFINITY;
        if lower.is_some_and(|lower| self.set(&lower.retention).is_some()) {
            self.tidy(&self.choices.each);
            self.note();
            least = self.now().again_s;
        }
        if let Some(own) = own.filter(|own| own.again_s <= least) {
            self.set(&own.retention);
            least = own.again_s;
        }
        if least < f64::INFINITY {
            self.improve_all();
        }
        std::mem::take(&mut self.points)
    }

    /// Looks for another target peak from now on.
    pub(super) fn aim(&mut self, target: u64) {
        self.timeline.aim(target);
    }

    /// Improves the solution while there is work left: half of it for choices that are the same for all parts of a batch, of which the
    /// first may have more room.
    fn improve_all(&mut self) {
        let Choices { each, together, .. } = self.choices;
        if each.len() > together.len() {
            let later = self.work / 2;
            self.work -= later;
            self.improve(together);
            self.work += later;
            self.tidy(each);
            self.note();
        }
        self.improve(each);
    }

    /// Notes the solution of each rule, and restarts from the one closest to the target; of equally close ones, the fastest.
    fn try_rules(&mut self, rules: &[Vec<Retention>], all: &[Vec<usize>]) {
        let before = self.timeline.retention().to_vec();
        let mut measures = Vec::new();
        for rule in rules {
            if let Some(measure) = self.set(rule) {
                self.note();
                measures.push((measure, rule));
            }
        }
        self.timeline.set(&before);
        let order = |a: &Measure, b: &Measure| a.excess.cmp(&b.excess).then(a.again_s.total_cmp(&b.again_s));
        if let Some((_, rule)) = measures.into_iter().min_by(|(a, _), (b, _)| order(a, b)) {
            self.restart(rule, all);
        }
    }

    /// Restarts from the optimal checkpoints of the chain.
    fn try_chain(&mut self, layers: &Layers, all: &[Vec<usize>]) {
        // What the reversal of a layer takes besides the inputs: the peak with all of them kept, without them.
        let (kept, inputs) = layers.all_kept(&self.choices.start);
        let before = self.timeline.retention().to_vec();
        let within = self.set(&kept).map(|all| all.peak.saturating_sub(inputs));
        self.timeline.set(&before);
        if let Some(room) = within.and_then(|within| self.timeline.target().checked_sub(within)) {
            self.restart(&layers.checkpoints(room, &self.choices.start), all);
        }
    }

    /// Continues from another solution if that is better.
    fn restart(&mut self, retention: &[Retention], all: &[Vec<usize>]) {
        let (other, before) = (self.timeline.retention().to_vec(), self.now());
        // Much slower than what there is, it will not catch up.
        let measure = self.set(retention);
        if measure.is_some_and(|raw| before.excess > 0 || raw.again_s < SLOW * before.again_s) {
            self.lower_each(all, false);
            self.tidy(all);
            self.note();
            if self.better(&before) {
                return;
            }
        }
        self.timeline.set(&other);
    }

    pub(super) fn now(&self) -> Measure {
        self.timeline.now()
    }

    /// Whether the solution is closer to the target than `before`, or as close in less time.
    fn better(&self, before: &Measure) -> bool {
        let now = self.now();
        (now.excess, now.again_s) < (before.excess, before.again_s)
    }

    fn note(&mut self) {
        let Measure { peak, again_s, .. } = self.now();
        self.points.push(Point { retention: self.timeline.retention().to_vec(), peak, again_s });
    }

    /// Takes another solution. `None`, and nothing changes, if a dropped slot cannot be recomputed in it.
    fn set(&mut self, retention: &[Retention]) -> Option<Measure> {
        let measure = self.timeline.set(retention)?;
        self.work = self.work.saturating_sub(STEP * self.timeline.steps());
        Some(measure)
    }

    /// Measures another choice for some slots, which [`Timeline::keep`] can then take. `None` if a dropped slot cannot be recomputed,
    /// if the excess is more than `most`, or if it does not take less than `below_s` again.
    fn with(&mut self, slots: &[usize], choice: Retention, most: u64, below_s: f64) -> Option<Outcome> {
        let outcome = self.timeline.measure(&mut slots.iter().map(|&slot| (slot, choice)), most, below_s);
        self.work = self.work.saturating_sub(self.timeline.work());
        outcome
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
        while self.now().excess > 0 && self.work > 0 {
            if heap.is_empty() {
                if !hopeful {
                    return;
                }
                hopeful = false;
                let flips =
                    parts.clone().flat_map(|slots| choices.iter().map(move |&choice| (slots, choice)));
                heap.extend(flips.filter_map(|(slots, choice)| self.hope(slots, choice)));
            }
            if !self.take_best(&mut heap) {
                continue;
            }
            hopeful = true;
            if note {
                self.note();
            }
        }
    }

    /// Whether the choice may save more bytes than the present one of any of the slots: a result that was copied back stays in memory, one
    /// that is recomputed for each reader does not.
    fn drops(&self, slots: &[usize], choice: Retention) -> bool {
        let more = |kept: Retention| choice > kept || (kept == Offload && choice == RecomputePerUse);
        slots.iter().any(|&slot| more(self.timeline.retention()[slot]))
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
        let worth = times * bytes as f64 * self.now().over as f64 / seconds.max(1e-9);
        self.drops(slots, choice).then_some(Flip { worth, slots, choice })
    }

    fn worth<'s>(&mut self, slots: &'s [usize], choice: Retention) -> Option<Flip<'s>> {
        if !self.drops(slots, choice) {
            return None;
        }
        let now = self.now();
        let Outcome { excess, again_s } =
            self.with(slots, choice, now.excess.checked_sub(1)?, f64::INFINITY)?;
        let seconds = (again_s - now.again_s).max(1e-9);
        Some(Flip { worth: (now.excess - excess) as f64 / seconds, slots, choice })
    }

    /// Makes the best change. Worths in the heap are stale: the first change with a current worth that still beats the next one is
    /// taken. `false` if there is none.
    fn take_best<'s>(&mut self, heap: &mut BinaryHeap<Flip<'s>>) -> bool {
        while let Some(stale) = heap.pop() {
            let Some(flip) = self.worth(stale.slots, stale.choice) else { continue };
            if heap.peek().is_none_or(|next| flip.worth >= next.worth) {
                self.timeline.keep();
                return true;
            }
            heap.push(flip);
        }
        false
    }

    /// Keeps slots again that need not be dropped, the most expensive first.
    fn tidy(&mut self, some: &[Vec<usize>]) {
        let model = self.model;
        let seconds =
            |slots: &[usize]| model.slots[slots[0]].producer.map_or(0.0, |n| model.works[n as usize].seconds);
        let kept = |search: &Self, slots: &[usize]| {
            slots.iter().map(|&slot| search.timeline.retention()[slot]).max().unwrap_or(Retention::Save)
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
                let now = self.now();
                if self.with(slots, choice, now.excess, now.again_s).is_some() {
                    self.timeline.keep();
                    break;
                }
            }
        }
    }

    /// Resets the choices of a few neighbouring slots of `all` and searches them again, from then on where that is not much worse than
    /// the best; ends with the best.
    fn improve(&mut self, all: &'a [Vec<usize>]) {
        let whole = self.work as f64;
        let mut best = (self.now(), self.timeline.retention().to_vec());
        let mut failures = 0;
        while !all.is_empty() && self.work > 0 && failures < PATIENCE {
            let most_s = best.0.again_s * (1.0 + SLACK * self.work as f64 / whole);
            let width = 4 + self.dice(20) as usize;
            let mut part = self.neighbours(all, width).to_vec();
            if self.dice(2) == 0 {
                part.extend_from_slice(self.neighbours(all, width / 2));
            }
            let (retention, before) = (self.timeline.retention().to_vec(), self.now());
            let choices = self.choices;
            let mut start = part.iter().flatten().map(|&slot| (slot, choices.start[slot]));
            if self.take(&mut start).is_some() {
                self.lower_each(&part, false);
                self.tidy(&part);
            }
            failures += 1;
            let now = self.now();
            if self.better(&best.0) {
                failures = 0;
                best = (now, self.timeline.retention().to_vec());
                self.note();
            } else if !self.better(&before) && (now.excess > best.0.excess || now.again_s >= most_s) {
                self.take(&mut retention.into_iter().enumerate());
            }
        }
        self.take(&mut best.1.into_iter().enumerate());
    }

    /// Takes another choice for some slots.
    fn take(&mut self, choices: &mut dyn Iterator<Item = (usize, Retention)>) -> Option<Measure> {
        let taken = self.timeline.take(choices);
        self.work = self.work.saturating_sub(self.timeline.work());
        taken
    }

    fn neighbours(&mut self, all: &'a [Vec<usize>], width: usize) -> &'a [Vec<usize>] {
        let from = self.dice(all.len() as u64) as usize;
        &all[from..all.len().min(from + width)]
    }

    fn dice(&mut self, below: u64) -> u64 {
        self.thrown += 1;
        random::bits(0x5eed, self.thrown) % below.max(1)
    }
}

/// Slots, those that hold the same result for different parts of a batch together.
fn of_all_parts(model: &CostModel, slots: &[usize]) -> Vec<Vec<usize>> {
    let mut together: Vec<Vec<usize>> = Vec::new();
    let mut place = vec![usize::MAX; model.slots.len()];
    for &slot in slots {
        let place = &mut place[model.slots[slot].first.map_or(slot, |first| first as usize)];
        if *place == usize::MAX {
            *place = together.len();
            together.push(Vec::new());
        }
        together[*place].push(slot);
    }
    together
}
