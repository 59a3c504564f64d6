//! Packs one line of memory: tries cheap methods first, until the bound is met or the budget is spent.

use super::budget::Budget;
use super::eject;
use super::exact::{self, Outcome};
use super::greedy::{self, Fit, Layout};
use super::improve::{Blame, improve};
use super::instance::Instance;
use super::order::Order;
use super::packing::{Effort, Method};
use super::refine::{descend, refine};
use super::skyline;

/// Orders for greedy packing, those that win most often first.
const GREEDY: [Order; 6] =
    [Order::Size, Order::Breadth, Order::Area, Order::Conflicts, Order::Lifetime, Order::Time];

/// Orders for skyline packing, those that win most often first.
const GROUND_UP: [Order; 5] =
    [Order::BandReach, Order::BandArea, Order::BandLifetime, Order::Area, Order::BreadthLifetime];

/// Orders for skyline packing of large problems, where each packing is expensive: those that miss the bound
/// by the least come first.
const AT_LARGE: [Order; 5] =
    [Order::BandArea, Order::BandReach, Order::BandNest, Order::BandLifetime, Order::BreadthLifetime];

/// Units of work for a large problem, so that the largest graphs take well below a second.
const LARGE_WORK: u64 = 500_000_000;

/// Units of work for ejection where a large problem gets no more than the balanced effort.
const EJECTION_WORK: u64 = 500_000_000;

/// Most items that are packed by size although the budget for packings is spent.
const MOST_BY_SIZE: usize = 100_000;

/// Units of work of the first exact search where the lowest height is asked for.
const FIRST_ATTEMPT: u64 = 100_000_000;

/// The goal and the limits of packing one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    /// No packing is lower than this many bytes.
    pub bound: u64,
    /// A packing of this height suffices.
    pub enough: u64,
    /// Largest height allowed in one chunk.
    pub limit: Option<u64>,
    /// How much work is spent.
    pub effort: Effort,
}

/// The best layout found and what is known about it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub layout: Layout,
    pub method: Method,
    /// No layout is lower than this many bytes.
    pub proved: u64,
}

struct Line<'a> {
    instance: &'a Instance,
    goal: Goal,
    budget: &'a mut Budget,
    best: Option<(Layout, Method)>,
}

/// Packs `instance`; returns `None` if no packing fits 64 bits and the limit.
pub(super) fn pack(instance: &Instance, goal: Goal, budget: &mut Budget) -> Option<Found> {
    let mut line = Line { instance, goal, budget, best: None };
    if line.one_chunk_may_do() && instance.len() > exact::MOST_ITEMS {
        line.at_large();
        if let Some((layout, method)) = line.best {
            return Some(Found { layout, method, proved: goal.bound });
        }
    }
    line.greedy(&GREEDY[..1], Fit::First);
    if line.one_chunk_may_do() {
        line.ground_up();
    }
    if line.one_chunk_may_do() && exact::applies(instance) {
        line.try_at_once();
    }
    line.greedy(&GREEDY[1..], Fit::First);
    line.greedy(&GREEDY, Fit::Best);
    let mut proved = goal.bound;
    if line.one_chunk_may_do() {
        line.improve();
        proved = line.search();
    }
    line.best.map(|(layout, method)| Found { layout, method, proved })
}

impl Line<'_> {
    fn done(&self) -> bool {
        self.best.as_ref().is_some_and(|(layout, _)| layout.height() <= self.goal.enough)
    }

    /// Whether no height above the bound suffices.
    fn minimises(&self) -> bool {
        self.goal.enough <= self.goal.bound
    }

    fn one_chunk_may_do(&self) -> bool {
        !self.done()
            && self.instance.is_modest()
            && self.goal.limit.is_none_or(|limit| self.goal.bound <= limit)
    }

    fn offer(&mut self, layout: Option<Layout>, method: Method) {
        let Some(layout) = layout else { return };
        let fits = self.goal.limit.is_none_or(|limit| layout.heights.iter().all(|&height| height <= limit));
        if fits && self.best.as_ref().is_none_or(|(best, _)| layout.height() < best.height()) {
            self.best = Some((layout, method));
        }
    }

    fn greedy(&mut self, orders: &[Order], fit: Fit) {
        // Best fit inspects every gap, first fit only those up to its place.
        let per_item = if fit == Fit::Best { 500 } else { 120 };
        let cost = self.instance.len() as u64 * u64::from(self.instance.slices.ilog2() + 1) * per_item;
        for &order in orders {
            if self.done() || (self.best.is_some() && !self.budget.allows(3 * cost)) {
                return;
            }
            self.budget.spend(cost);
            let layout = greedy::pack(self.instance, &order.of(self.instance), fit, self.goal.limit);
            self.offer(layout, Method::Greedy(order, fit));
        }
    }

    /// Packs an instance too large for exact search. One skyline packing is made regardless of its cost,
    /// because no other method is as cheap at this size. Further orders follow, then local search, from the
    /// order with the lowest result on.
    fn at_large(&mut self) {
        let mut part = self.budget.part(LARGE_WORK);
        let granted = part.left();
        let mut dearest = 0;
        let mut by_size = None;
        let mut heights: Vec<(u64, Order)> = Vec::new();
        for order in AT_LARGE {
            // A packing that has started is finished, so the last one may exceed the budget somewhat.
            if self.done() || !part.allows(dearest / 4 * 3) {
                break;
            }
            let first = self.best.is_none();
            let mut one = if first { Budget::new(u64::MAX, None) } else { part.without_end() };
            let Some(layout) = skyline::pack(self.instance, &order.of(self.instance), &mut one) else {
                break;
            };
            let spent = u64::MAX - one.left();
            part.spend(spent);
            dearest = dearest.max(spent);
            heights.push((layout.height(), order));
            self.offer(Some(layout), Method::Skyline(order));
            // When a few large items make up the height, greedy packing by size wins. It takes two to three
            // times as long as a skyline packing.
            if heights.len() == 3 && !self.done() && part.allows(dearest) {
                part.spend(5 * dearest / 2);
                by_size = self.large_by_size();
            }
        }
        if by_size.is_none() && !self.done() && self.goal.effort != Effort::Fast {
            by_size = self.large_by_size();
        }
        heights.sort_unstable();
        for blame in [Blame::ToFront, Blame::Halfway] {
            for &(_, order) in &heights {
                if self.done() || !part.allows(2 * dearest) {
                    break;
                }
                let ranked = order.of(self.instance);
                let layout = improve(self.instance, ranked, blame, 4, self.goal.enough, &mut part);
                self.offer(layout, Method::LocalSearch(order));
            }
        }
        self.budget.spend(granted - part.left());
        match self.goal.effort {
            Effort::Fast => {}
            Effort::Balanced => self.eject(by_size.as_ref(), 1, EJECTION_WORK),
            Effort::Exact => {
                self.eject(by_size.as_ref(), 1, EJECTION_WORK);
                self.eject(by_size.as_ref(), 4, u64::MAX);
            }
        }
    }

    /// Packs a large instance by size, first fit, unless it is so large that this takes most of a second.
    fn large_by_size(&mut self) -> Option<Layout> {
        if self.instance.len() > MOST_BY_SIZE {
            return None;
        }
        let by_size = Order::Size.of(self.instance);
        let layout = greedy::pack(self.instance, &by_size, Fit::First, self.goal.limit);
        self.offer(layout.clone(), Method::Greedy(Order::Size, Fit::First));
        layout.filter(|layout| layout.heights.len() == 1)
    }

    /// Lowers the best layout by ejection; every other chain starts at `other`.
    fn eject(&mut self, other: Option<&Layout>, chains: usize, work: u64) {
        if self.done() || !self.budget.allows(1) {
            return;
        }
        let Some((best, _)) = &self.best else { return };
        let mut part = self.budget.part(work);
        let granted = part.left();
        let starts = [best, other.unwrap_or(best)];
        let layout = eject::lower(self.instance, &starts, self.goal.enough, chains, &mut part);
        self.budget.spend(granted - part.left());
        self.offer(layout, Method::Ejection);
    }

    fn ground_up(&mut self) {
        for order in GROUND_UP {
            if self.done() || !self.budget.allows(self.ground_up_cost()) {
                return;
            }
            let layout = skyline::pack(self.instance, &order.of(self.instance), self.budget);
            self.offer(layout, Method::Skyline(order));
        }
    }

    /// Returns the typical cost of a skyline packing: items are tried several times before they are placed.
    fn ground_up_cost(&self) -> u64 {
        let looks = (self.instance.len() as u64).min(8);
        self.instance.len() as u64 * looks * skyline::look_cost(self.instance)
    }

    /// Runs a first, short exact search: most problems that greedy packing does not solve take a few thousand
    /// nodes.
    fn try_at_once(&mut self) {
        let work = match self.goal.effort {
            Effort::Fast => self.budget.left() / 2,
            // The search by falling capacities comes back to this one.
            Effort::Exact if self.minimises() => FIRST_ATTEMPT,
            Effort::Balanced | Effort::Exact => self.budget.left() / 12,
        };
        let mut part = self.budget.part(work);
        let granted = part.left();
        if let Outcome::Found(layout) = exact::fits(self.instance, self.goal.enough, 0, &mut part) {
            self.offer(Some(layout), Method::Exact);
        }
        self.budget.spend(granted - part.left());
    }

    fn improve(&mut self) {
        let (rounds, share) = match self.goal.effort {
            Effort::Fast => (12, 16),
            Effort::Balanced => (40, 64),
            Effort::Exact if self.minimises() => (40, 512),
            Effort::Exact => (200, 64),
        };
        for blame in [Blame::ToFront, Blame::Halfway] {
            for order in GROUND_UP {
                if self.done() || !self.budget.allows(self.ground_up_cost()) {
                    return;
                }
                let ranked = order.of(self.instance);
                let mut part = self.budget.part((self.budget.left() / share).max(4 * self.ground_up_cost()));
                let granted = part.left();
                let layout = improve(self.instance, ranked, blame, rounds, self.goal.enough, &mut part);
                self.budget.spend(granted - part.left());
                self.offer(layout, Method::LocalSearch(order));
            }
        }
    }

    /// Runs exact search; returns the lower bound that is proved afterwards.
    fn search(&mut self) -> u64 {
        let Goal { bound, enough, effort, .. } = self.goal;
        let Some((best, _)) = &self.best else { return bound };
        if self.done() || !exact::applies(self.instance) {
            return bound;
        }
        let refined = if self.minimises() && effort == Effort::Exact {
            descend(self.instance, bound, best, self.budget)
        } else {
            refine(self.instance, bound, best.height(), enough, effort == Effort::Exact, self.budget)
        };
        self.offer(refined.layout, Method::Exact);
        refined.proved
    }
}
