//! From a problem to a validated packing: one arena at a time, cheap methods first.

use std::collections::BTreeMap;

use super::bound::lower_bound;
use super::check::check;
use super::error::PackError;
use super::greedy::{self, Fit, Layout};
use super::instance::Instance;
use super::order::Order;
use super::packing::{Certificate, Method, Options, Packing};
use super::problem::{Item, Placement, Problem, Solution};
use super::validate::validate;

/// Packs every item of `problem` and proves the result valid.
///
/// # Errors
/// A [`PackError`] that names the item that cannot be packed, or `Overflow` if offsets leave 64 bits.
pub fn solve(problem: &Problem, options: &Options) -> Result<Packing, PackError> {
    check(problem)?;
    let arenas = problem.items.iter().map(|item| item.arena + 1).max().unwrap_or(0);
    let mut solution = Solution {
        placements: vec![Placement::default(); problem.items.len()],
        arenas: vec![0; arenas as usize],
    };
    let overflow = || PackError::Overflow { items: problem.items.len() };
    let mut bound = 0u64;
    let mut method = Method::Empty;
    let mut members_of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, item) in problem.items.iter().enumerate() {
        members_of.entry(item.arena).or_default().push(index);
    }
    for (&arena, members) in &members_of {
        let items: Vec<&Item> = members.iter().map(|&i| &problem.items[i]).collect();
        let least = lower_bound(items.iter().copied()).ok_or_else(overflow)?;
        bound = bound.checked_add(least).ok_or_else(overflow)?;
        let (layout, how) =
            pack_one(&Instance::new(&items), least, problem.max_arena, options).ok_or_else(overflow)?;
        method = how;
        write_back(members, &layout, arena, &mut solution);
    }
    validate(problem, &solution)?;
    let height = solution.arenas.iter().try_fold(0u64, |sum, h| sum.checked_add(*h)).ok_or_else(overflow)?;
    let certificate =
        Certificate { height, lower_bound: bound, gap: height - bound, optimal: height == bound, method };
    Ok(Packing { solution, certificate })
}

/// The best of the greedy portfolio; stops at the first layout that meets the bound or the capacity.
fn pack_one(
    instance: &Instance,
    bound: u64,
    limit: Option<u64>,
    options: &Options,
) -> Option<(Layout, Method)> {
    let enough = bound.max(options.capacity.unwrap_or(0));
    let mut best: Option<(Layout, Method)> = None;
    for order in Order::ALL {
        let sequence = order.of(instance);
        for fit in [Fit::First, Fit::Best] {
            let Some(layout) = greedy::pack(instance, &sequence, fit, limit) else { continue };
            if best.as_ref().is_none_or(|(least, _)| layout.height() < least.height()) {
                best = Some((layout, Method::Greedy(order, fit)));
            }
            if best.as_ref().is_some_and(|(least, _)| least.height() <= enough) {
                return best;
            }
        }
    }
    best
}

fn write_back(members: &[usize], layout: &Layout, arena: u32, solution: &mut Solution) {
    let further = solution.arenas.len() as u32;
    for (position, &item) in members.iter().enumerate() {
        let chunk = layout.chunk[position];
        let arena = if chunk == 0 { arena } else { further + chunk - 1 };
        solution.placements[item] = Placement { arena, offset: layout.offset[position] };
    }
    solution.arenas[arena as usize] = layout.heights[0];
    solution.arenas.extend_from_slice(&layout.heights[1..]);
}
