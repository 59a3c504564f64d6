//! Local search for problems that are too large for exact search: guided ejection (Nagata & Bräysy, Operations
//! Research Letters 37, 2009, who use it to empty vehicle routes).
//!
//! All items that end above a target height are taken out. Each is put below the target at the place where it
//! displaces the least bytes, and the items that lay there are taken out in turn. An item that was hard to
//! place becomes dearer to displace. One move looks only at the items alive together with one item, so that it
//! costs far less than another packing.

use std::collections::BinaryHeap;

use super::budget::Budget;
use super::greedy::Layout;
use super::instance::Instance;
use crate::parallel;

/// Units of work of a chain in the first round, for each item; rounds without success double it.
const FIRST_ROUND: u64 = 10_000;

/// Units of work per item looked at in one move, sorting included.
const LOOK_COST: u64 = 40;

/// A displacement that is never chosen: fixed items have it.
const NEVER: u64 = 1 << 56;

/// Returns the lowest layout found that is lower than all `starts`; ends early at height `enough`.
///
/// In each round `chains` independent searches run on all cores, from the starts in turn in the first round and
/// then from the lowest layout so far. The lowest result counts, the first one if several are equally low: the
/// number of cores does not matter.
pub(super) fn lower(
    instance: &Instance,
    starts: &[&Layout],
    enough: u64,
    chains: usize,
    budget: &mut Budget,
) -> Option<Layout> {
    let alive = Alive::new(instance);
    let start = *starts.iter().min_by_key(|layout| layout.height())?;
    let mut best: Option<Layout> = None;
    let mut round = FIRST_ROUND * instance.len() as u64;
    let mut penalties = vec![vec![1u64; instance.len()]; chains];
    for number in 0u64.. {
        let lowest = best.as_ref().unwrap_or(start);
        let before = lowest.height();
        if before <= enough || budget.left() == 0 {
            break;
        }
        let part = budget.part(round.min(budget.left().div_ceil(chains as u64)));
        let results = parallel::map(chains, |chain| {
            let mut part = part.clone();
            let from = if number == 0 { starts[chain % starts.len()] } else { lowest };
            let seed = number * chains as u64 + chain as u64;
            let mut search = Search::new(instance, &alive, from, penalties[chain].clone(), seed);
            search.descend(enough, chain, &mut part);
            (search.best, search.penalty, part.left())
        });
        let mut spent = 0;
        for (chain, (layout, penalty, left)) in results.into_iter().enumerate() {
            spent += part.left() - left;
            penalties[chain] = penalty;
            if layout.height() < best.as_ref().unwrap_or(start).height() {
                best = Some(layout);
            }
        }
        budget.spend(spent.max(1));
        if best.as_ref().is_none_or(|best| best.height() == before) {
            round = round.saturating_mul(2);
        }
    }
    best
}

/// Finds the items that are alive together with an item.
struct Alive {
    /// Items by first slice.
    by_start: Vec<u32>,
    /// Number of items that start before each slice.
    started: Vec<u32>,
    /// Items alive in every `stride`-th slice.
    alive: Vec<Vec<u32>>,
    stride: usize,
}

impl Alive {
    /// Entries of all `alive` lists together, about: 16 MiB.
    const ENTRIES: usize = 4 << 20;

    fn new(instance: &Instance) -> Self {
        let items = || (0..instance.len() as u32).filter(|&i| instance.size[i as usize] > 0);
        let mut by_start: Vec<u32> = items().collect();
        by_start.sort_by_key(|&i| instance.first[i as usize]);
        let mut started = vec![0u32; instance.slices + 1];
        for &i in &by_start {
            started[instance.first[i as usize] as usize + 1] += 1;
        }
        for slice in 0..instance.slices {
            started[slice + 1] += started[slice];
        }
        let lifetimes: usize = items().map(|i| instance.span(i as usize).len()).sum();
        let stride = (lifetimes / Self::ENTRIES + 1).next_power_of_two().max(8);
        let mut alive = vec![Vec::new(); instance.slices.div_ceil(stride)];
        for &i in &by_start {
            let span = instance.span(i as usize);
            let points = span.start.div_ceil(stride)..span.end.div_ceil(stride);
            alive[points].iter_mut().for_each(|list| list.push(i));
        }
        Self { by_start, started, alive, stride }
    }

    /// Calls `visit` for each item of more than 0 bytes that is alive together with item `i`, except `i`.
    fn with(&self, instance: &Instance, i: usize, mut visit: impl FnMut(usize)) {
        let span = instance.span(i);
        let point = span.start / self.stride;
        let later = self.started[point * self.stride + 1] as usize..self.started[span.end] as usize;
        let later = self.by_start.get(later).unwrap_or(&[]);
        for &j in self.alive[point].iter().chain(later) {
            let j = j as usize;
            if j != i && instance.last[j] as usize > span.start {
                visit(j);
            }
        }
    }
}

struct Search<'a> {
    instance: &'a Instance,
    alive: &'a Alive,
    offset: Vec<u64>,
    placed: Vec<bool>,
    /// Grows each time an item cannot be placed without displacing others.
    penalty: Vec<u64>,
    /// Cost of displacing each item once.
    cost: Vec<u64>,
    best: Layout,
    draws: u64,
    /// Scratch: items alive with the one being placed, by offset and by end, each with its cost.
    starts: Vec<(u64, u64)>,
    ends: Vec<(u64, u64)>,
}

impl<'a> Search<'a> {
    fn new(instance: &'a Instance, alive: &'a Alive, start: &Layout, penalty: Vec<u64>, seed: u64) -> Self {
        let largest = instance.size.iter().copied().max().unwrap_or(1).max(1);
        // Costs of at most 2^20 and penalties of at most 2^12: sums of 2^24 items stay below `NEVER`.
        let shift = (64 - largest.leading_zeros()).saturating_sub(20);
        Self {
            instance,
            alive,
            offset: start.offset.clone(),
            placed: vec![true; instance.len()],
            penalty,
            cost: instance.size.iter().map(|size| (size >> shift) + 1).collect(),
            best: start.clone(),
            draws: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            starts: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Lowers the target until the budget ends: to a fraction of what separates the best layout from `enough`,
    /// and by less after each failure.
    fn descend(&mut self, enough: u64, chain: usize, budget: &mut Budget) {
        // The share of the gap to close, in sixteenths; chains differ in their first step.
        let first = [8, 4, 2, 6][chain % 4];
        let mut close = first;
        while budget.left() > 0 && self.best.height() > enough {
            let gap = self.best.height() - enough;
            let target = self.best.height() - (gap / 16 * close).max(1).min(gap);
            let mut part = budget.part((budget.left() / 3).max(LOOK_COST));
            let granted = part.left();
            let reached = self.reach(target, &mut part);
            budget.spend((granted - part.left()).max(1));
            if reached {
                let tops = (0..self.offset.len()).map(|i| self.offset[i] + self.instance.size[i]);
                let height = tops.max().unwrap_or(0);
                self.best =
                    Layout { offset: self.offset.clone(), heights: vec![height], ..self.best.clone() };
                close = first;
            } else {
                self.offset.clone_from(&self.best.offset);
                self.placed.fill(true);
                close = (close / 2).max(1);
            }
        }
    }

    /// Moves items until none ends above `target`; returns false if the budget ends first.
    fn reach(&mut self, target: u64, budget: &mut Budget) -> bool {
        let instance = self.instance;
        let mut waiting: BinaryHeap<(u64, u32)> = BinaryHeap::new();
        for i in 0..instance.len() {
            if instance.size[i] > 0 && self.offset[i] + instance.size[i] > target {
                if instance.fixed[i].is_some() {
                    return false;
                }
                self.placed[i] = false;
                waiting.push((self.cost[i], i as u32));
            }
        }
        while let Some((_, item)) = waiting.pop() {
            let i = item as usize;
            let Some((displaced, place)) = self.cheapest(i, target) else { return false };
            let looks = self.starts.len() as u64 + 4;
            if !budget.spend(LOOK_COST * looks) {
                return false;
            }
            let end = place + instance.padded(i);
            if displaced > 0 {
                self.penalty[i] = (self.penalty[i] + 1).min(1 << 12);
                let (alive, offset, placed) = (self.alive, &self.offset, &mut self.placed);
                alive.with(instance, i, |j| {
                    if placed[j] && offset[j] < end && offset[j] + instance.padded(j) > place {
                        placed[j] = false;
                        waiting.push((self.cost[j], j as u32));
                    }
                });
            }
            self.offset[i] = place;
            self.placed[i] = true;
        }
        true
    }

    /// Returns the least cost of what item `i` displaces below `target`, and an offset where that is so.
    fn cheapest(&mut self, i: usize, target: u64) -> Option<(u64, u64)> {
        let instance = self.instance;
        let (size, alignment) = (instance.padded(i), instance.alignment[i]);
        let most = target.checked_sub(instance.size[i])?;
        let (mut starts, mut ends) = (std::mem::take(&mut self.starts), std::mem::take(&mut self.ends));
        starts.clear();
        ends.clear();
        self.alive.with(instance, i, |j| {
            if self.placed[j] {
                let cost = if instance.fixed[j].is_some() { NEVER } else { self.cost[j] * self.penalty[j] };
                starts.push((self.offset[j], cost));
                ends.push((self.offset[j] + instance.padded(j), cost));
            }
        });
        // The order of equal ones does not matter: their costs are added up.
        starts.sort_unstable_by_key(|(start, _)| *start);
        ends.sort_unstable_by_key(|(end, _)| *end);
        let mut least: Option<(u64, u64)> = None;
        let mut equal = 0u64;
        // On top of each item, and at the bottom: offsets in ascending order, so that two pointers follow.
        let (mut started, mut ended, mut cost, mut tops) = (0, 0, 0u64, 0);
        let mut place = Some(0u64);
        while let Some(at) = place.filter(|&at| at <= most) {
            while started < starts.len() && starts[started].0 < at + size {
                cost = cost.wrapping_add(starts[started].1);
                started += 1;
            }
            while ended < ends.len() && ends[ended].0 <= at {
                cost = cost.wrapping_sub(ends[ended].1);
                ended += 1;
            }
            match least {
                Some((known, _)) if cost > known => {}
                Some((known, _)) if cost == known => {
                    equal += 1;
                    if self.draw(equal) == 0 {
                        least = Some((cost, at));
                    }
                }
                _ => {
                    least = Some((cost, at));
                    equal = 1;
                    if cost == 0 {
                        break;
                    }
                }
            }
            place = None;
            while tops < ends.len() {
                let next = ends[tops].0.next_multiple_of(alignment);
                tops += 1;
                if next > at {
                    place = Some(next);
                    break;
                }
            }
        }
        self.starts = starts;
        self.ends = ends;
        least.filter(|&(cost, _)| cost < NEVER)
    }

    /// Returns a pseudo-random number below `limit`: Knuth's MMIX generator.
    fn draw(&mut self, limit: u64) -> u64 {
        self.draws =
            self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::super::greedy::{self, Fit};
    use super::super::order::Order;
    use super::super::problem::Item;
    use super::super::skyline;
    use super::*;

    /// Lifetimes and sizes of a fixed sequence, one of them fixed, aligned to 4.
    fn instance(items: u64) -> Instance {
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut all = vec![Item::new("held", 3, 9, 100).fixed_at(0, 64)];
        for _ in 0..items {
            let (lower, length) = (draw(100), 1 + draw(30));
            all.push(Item::new("item", lower, lower + length, 1 + draw(200)).aligned(4));
        }
        Instance::new(&all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn alive_together_are_the_items_whose_lifetimes_overlap() {
        let instance = instance(60);
        let alive = Alive::new(&instance);
        for i in 0..instance.len() {
            let mut found = Vec::new();
            alive.with(&instance, i, |j| found.push(j));
            found.sort_unstable();
            let expected: Vec<usize> =
                (0..instance.len()).filter(|&j| j != i && instance.together(i, j)).collect();
            assert_eq!(found, expected, "item {i}");
        }
    }

    #[test]
    fn ejection_lowers_a_packing_without_overlaps_and_the_same_every_time() {
        let instance = instance(200);
        let unlimited = || Budget::new(u64::MAX, None);
        let start = skyline::pack(&instance, &Order::Time.of(&instance), &mut unlimited()).expect("no limit");
        let by_size =
            greedy::pack(&instance, &Order::Size.of(&instance), Fit::First, None).expect("no limit");
        let run = || {
            let mut budget = Budget::new(40_000_000, None);
            lower(&instance, &[&start, &by_size], instance.bound().expect("small"), 3, &mut budget)
        };
        let layout = run().expect("lower");
        assert!(layout.height() < start.height().min(by_size.height()), "{}", layout.height());
        assert_eq!(layout.offset[0], 64, "the fixed item stays");
        for i in 0..instance.len() {
            let end = |i: usize| layout.offset[i] + instance.size[i];
            assert!(end(i) <= layout.height() && layout.offset[i].is_multiple_of(instance.alignment[i]));
            for j in 0..i {
                let apart = end(i) <= layout.offset[j] || end(j) <= layout.offset[i];
                assert!(apart || !instance.together(i, j), "{i} {j}");
            }
        }
        assert_eq!(run(), Some(layout));
    }
}
