//! Improves a good packing to the best one, by exact search at decreasing capacities.

use super::budget::Budget;
use super::exact::{self, Outcome};
use super::greedy::Layout;
use super::instance::Instance;

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
        let outcome = exact::fits(instance, target, &mut part);
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
