//! From a good packing to the best: exact search at falling capacities.

use super::budget::Budget;
use super::exact::{self, Outcome};
use super::greedy::Layout;
use super::instance::Instance;

/// What the search could establish.
#[derive(Clone, Debug)]
pub(super) struct Refined {
    /// A layout lower than the one known before, if one was found.
    pub layout: Option<Layout>,
    /// No layout is lower than this many bytes.
    pub proved: u64,
}

/// Searches between `bound` (proved) and `height` (known to be reachable); ends at `enough`.
///
/// The first attempt is at `enough`, with half of the budget. What is then left goes to bisection: a capacity that cannot be
/// decided in a share of the budget counts as out of reach until, with `thorough`, the shares grow and all is tried again.
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
            // Every capacity below was tried: again from the proved bound, with what is left, or that is all.
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
