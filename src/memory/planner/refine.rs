//! Improves a good packing to the best one, by exact search at decreasing capacities.

use super::budget::Budget;
use super::eject;
use super::exact::{self, Outcome};
use super::greedy::Layout;
use super::instance::Instance;
use crate::parallel;

/// The result of the search.
#[derive(Clone, Debug)]
pub(super) struct Refined {
    /// A layout lower than the best known one, if one was found.
    pub layout: Option<Layout>,
    /// Proved lower bound in bytes.
    pub proved: u64,
}

/// Searches between `bound` (proved) and `height` (known to be reachable); ends at `enough`.
///
/// The first attempt is at `enough`, with half of the budget. The rest is spent on bisection: a capacity that
/// cannot be decided in its share of the budget counts as unreachable. With `thorough`, all undecided
/// capacities are retried with larger shares.
pub(super) fn refine(
    instance: &Instance,
    bound: u64,
    height: u64,
    enough: u64,
    thorough: bool,
    budget: &mut Budget,
) -> Refined {
    let step = exact::height_step(instance);
    let mut found = Refined { layout: None, proved: bound };
    let mut reached = height;
    let mut share = budget.left() / 2;
    let mut target = enough.max(bound);
    let mut assumed = target;
    while reached > enough.max(found.proved) && budget.left() > 0 {
        let mut part = budget.part(share.max(1));
        let granted = part.left();
        let outcome = exact::fits(instance, target, 0, &mut part);
        budget.spend(granted - part.left());
        match outcome {
            Outcome::Found(layout) => {
                reached = layout.height();
                found.layout = Some(layout);
            }
            Outcome::Impossible => {
                found.proved = (target + 1).next_multiple_of(step);
                assumed = assumed.max(target);
            }
            Outcome::Unknown => assumed = assumed.max(target),
        }
        share = share.min(budget.left() / 4).max(1);
        if assumed + step >= reached {
            // Every capacity below was tried: restart from the proved bound with the remaining budget, or
            // stop.
            if !thorough || budget.left() == 0 {
                break;
            }
            assumed = found.proved - 1;
            share = budget.left() / 2;
        }
        let middle = assumed + (reached - assumed) / 2;
        target = (middle / step * step).max(found.proved).max(enough).min(reached - 1);
        if target <= assumed {
            target = (assumed + 1).next_multiple_of(step).min(reached - 1);
        }
    }
    found.proved = found.proved.min(reached);
    found
}

/// How much of the gap between the proved bound and the best height each search of a wave closes at a time, in
/// 32nds. The first settles the problem if it succeeds; the last succeeds most easily.
const WAVE: [u64; 4] = [32, 12, 4, 1];

/// Units of work of each search of the first wave, for each item: waves without success double it.
const FIRST_SHARE: u64 = 20_000;

/// Searches by falling capacities and rising bounds, between `bound` (proved) and the height of `best`, until
/// they meet or the budget ends.
///
/// The searches of a wave are independent, each with its own share of the work, and run on all cores: the
/// lowest layout counts, the first one if several are equally low, and the highest bound. After a wave without
/// success, ejection goes on from the best layout.
pub(super) fn descend(instance: &Instance, bound: u64, best: &Layout, budget: &mut Budget) -> Refined {
    let mut found = Refined { layout: None, proved: bound };
    let mut share = FIRST_SHARE * instance.len() as u64;
    for wave in 0.. {
        let lowest = found.layout.as_ref().unwrap_or(best);
        let (reached, proved) = (lowest.height(), found.proved);
        if reached <= proved || budget.left() == 0 {
            break;
        }
        let part = budget.part(share.min(budget.left().div_ceil(WAVE.len() as u64)));
        let results = parallel::map(WAVE.len(), |which| {
            let mut part = part.clone();
            let refined = fall(instance, proved, reached, WAVE[which], wave, &mut part);
            (refined, part.left())
        });
        budget.spend(results.iter().map(|(_, left)| part.left() - left).sum::<u64>().max(1));
        for (refined, _) in results {
            found.proved = found.proved.max(refined.proved);
            let lowest = found.layout.as_ref().unwrap_or(best).height();
            found.layout = refined.layout.filter(|layout| layout.height() < lowest).or(found.layout);
        }
        let lowest = found.layout.as_ref().unwrap_or(best);
        if lowest.height() == reached && found.proved == proved {
            share = share.saturating_mul(2);
            let mut part = budget.part(share);
            let granted = part.left();
            let ejected = eject::lower(instance, &[lowest], found.proved, 4, &mut part);
            budget.spend(granted - part.left());
            found.layout = ejected.or(found.layout);
        }
    }
    let reached = found.layout.as_ref().unwrap_or(best).height();
    found.proved = found.proved.min(reached);
    found
}

/// Searches for a packing that closes `part` 32nds of the gap between `proved` and `reached`, and on from what
/// it finds, until a search is undecided when the budget ends.
fn fall(
    instance: &Instance,
    proved: u64,
    mut reached: u64,
    part: u64,
    seed: u64,
    budget: &mut Budget,
) -> Refined {
    let step = exact::height_step(instance);
    let mut found = Refined { layout: None, proved };
    while found.proved < reached && budget.left() > 0 {
        let steps = u128::from((reached - found.proved).div_ceil(step));
        let closed = (steps * u128::from(part)).div_ceil(32) as u64;
        let capacity = reached.saturating_sub(closed * step).max(found.proved);
        match exact::fits(instance, capacity, seed, budget) {
            Outcome::Found(layout) => {
                reached = layout.height();
                found.layout = Some(layout);
            }
            Outcome::Impossible => found.proved = (capacity + 1).next_multiple_of(step),
            Outcome::Unknown => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::order::Order;
    use super::super::problem::Item;
    use super::super::skyline;
    use super::*;

    #[test]
    fn falling_capacities_end_at_the_optimum_which_is_above_the_bound() {
        // The pairs of size 1 cannot all be adjacent, so that 3 of 3 bytes are needed where 3 are alive.
        let mut items = vec![Item::new("below", 0, 40, 5)];
        for copy in 0..6 {
            let (at, scale) = (6 * copy, 3 + copy);
            let ends = [(0, 2, 2), (1, 3, 1), (2, 4, 2), (3, 5, 1), (0, 1, 1), (4, 5, 2)];
            items.extend(
                ends.map(|(lower, upper, size)| Item::new("x", at + lower, at + upper, scale * size)),
            );
        }
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        let mut unlimited = Budget::new(u64::MAX, None);
        let order = Order::Time.of(&instance);
        let start = skyline::pack(&instance, &order, &mut unlimited).expect("no limit");
        let bound = instance.bound().expect("small");
        let run = || descend(&instance, bound, &start, &mut Budget::new(1_000_000_000, None));
        let refined = run();
        let height = refined.layout.as_ref().map_or(start.height(), Layout::height);
        assert_eq!(height, refined.proved, "the search settles it");
        assert_eq!(run().layout, refined.layout);
    }
}
