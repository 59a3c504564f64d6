//! Solves a problem arena by arena and validates the packing.

use std::collections::BTreeMap;

use super::bound::{lower_bound, lower_bound_in_chunks};
use super::budget::Budget;
use super::check::check;
use super::cut;
use super::error::PackError;
use super::greedy::Layout;
use super::instance::Instance;
use super::line::{self, Found, Goal};
use super::packing::{Certificate, Effort, Method, Options, Packing};
use super::problem::{Item, Placement, Problem, Solution};
use super::split;
use super::validate::validate;

/// Packs every item of `problem`, validates the result and returns it with a certificate of its quality.
///
/// # Errors
/// A [`PackError`] that names the item that cannot be packed, or `Overflow` if offsets exceed 64 bits.
pub fn solve(problem: &Problem, options: &Options) -> Result<Packing, PackError> {
    check(problem)?;
    let overflow = || PackError::Overflow { items: problem.items.len() };
    let mut members_of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, item) in problem.items.iter().enumerate() {
        members_of.entry(item.arena).or_default().push(index);
    }
    let mut budget = Budget::new(work(options.effort, problem.items.len()), options.time_limit);
    let arenas = members_of.last_key_value().map_or(0, |(&last, _)| last as usize + 1);
    let placements = vec![Placement::default(); problem.items.len()];
    let mut solution = Solution { placements, arenas: vec![0; arenas] };
    let (mut bound, mut method) = (0u64, Method::Empty);
    for (&arena, members) in &members_of {
        let items: Vec<&Item> = members.iter().map(|&i| &problem.items[i]).collect();
        let least = lower_bound(items.iter().copied()).ok_or_else(overflow)?;
        let instance = Instance::new(&items);
        // With several arenas, the share of the capacity that one arena may use is not known.
        let spare = options.capacity.filter(|_| members_of.len() == 1).unwrap_or(0);
        let (limit, effort) = (problem.max_arena, options.effort);
        // All offsets are multiples of the unit, so what a search could still gain is less than one: the padding
        // of another topmost item. Few searches can show that nothing is gained.
        let padding = match (effort, options.capacity, limit) {
            (Effort::Fast | Effort::Balanced, None, None) => instance.unit - 1,
            _ => 0,
        };
        let goal = Goal { bound: least, enough: least.saturating_add(padding).max(spare), limit, effort };
        let found = pack_arena(&instance, goal, &mut budget).ok_or_else(overflow)?;
        // The limit split the line: the bound proved for one line need not hold for several.
        let proved = match found.layout.heights.len() {
            0 | 1 => found.proved,
            chunks => lower_bound_in_chunks(items.iter().copied(), chunks).ok_or_else(overflow)?,
        };
        bound = bound.checked_add(proved).ok_or_else(overflow)?;
        method = costlier(method, found.method);
        write_back(members, &found.layout, arena, &mut solution);
    }
    validate(problem, &solution)?;
    let height = solution.arenas.iter().try_fold(0u64, |sum, h| sum.checked_add(*h)).ok_or_else(overflow)?;
    Ok(Packing { certificate: Certificate::new(height, bound, method)?, solution })
}

/// Units of work, about a nanosecond each.
fn work(effort: Effort, items: usize) -> u64 {
    match effort {
        // Usually enough for two or three packings.
        Effort::Fast => 50_000_000.max(8000 * items.saturating_sub(4000) as u64),
        Effort::Balanced => 1_200_000_000,
        Effort::Exact => 60_000_000_000,
    }
}

/// Packs the items of one arena into as many chunks as the limit requires. Three methods are tried in order:
/// one line cut along walls; items distributed among chunks; one line that continues in the next chunk when a chunk
/// is full, which takes the longest. Returns the first result that meets the goal, or else the lowest.
fn pack_arena(instance: &Instance, goal: Goal, budget: &mut Budget) -> Option<Found> {
    let Some(limit) = goal.limit.filter(|&limit| instance.is_modest() && goal.bound > limit) else {
        return line::pack(instance, goal, budget);
    };
    let meets = |layout: &Layout| layout.height() <= goal.enough;
    let split = |layout| Found { layout, method: Method::Split, proved: goal.bound };
    let cut = pack_cut(instance, limit, goal, budget).map(split);
    if cut.as_ref().is_some_and(|found| meets(&found.layout)) {
        return cut;
    }
    let dealt = pack_dealt(instance, limit, goal.effort, budget).map(split);
    if dealt.as_ref().is_some_and(|found| meets(&found.layout)) {
        return dealt;
    }
    let whole = line::pack(instance, goal, budget);
    [cut, whole, dealt].into_iter().flatten().min_by_key(|found| found.layout.height())
}

/// Units of work for a line with walls.
const WALLED_WORK: u64 = 250_000_000;

/// Packs one line without a limit, then packs it with walls along which it is cut into chunks.
fn pack_cut(instance: &Instance, limit: u64, goal: Goal, budget: &mut Budget) -> Option<Layout> {
    let line = line::pack(instance, Goal { limit: None, ..goal }, budget)?;
    let (walled, walls) = cut::raise_walls(instance, &line.layout, limit)?;
    let bound = walled.bound()?;
    // The walls are removed afterwards, so a line that exceeds the bound by at most their size is as good as
    // one at the bound. The rest of the excess is gaps below the walls, which search rarely closes: except
    // with `Effort::Exact`, 1/4000 of the bound is accepted.
    let walls_bytes = instance.unit.saturating_mul(walls.len() as u64);
    let let_be = if goal.effort == Effort::Exact { 0 } else { goal.bound / 4000 };
    let enough = bound.max(goal.bound.saturating_add(walls_bytes).saturating_add(let_be));
    let goal = Goal { bound, enough, limit: None, ..goal };
    let found = line::pack(&walled, goal, &mut budget.part(WALLED_WORK))?;
    cut::along_walls(instance, &found.layout, &walls, limit)
}

/// Distributes the items among chunks and packs each chunk separately. Returns `None` if a chunk exceeds the
/// limit.
fn pack_dealt(instance: &Instance, limit: u64, effort: Effort, budget: &mut Budget) -> Option<Layout> {
    let chunk_of = split::deal(instance, limit)?;
    let chunks = chunk_of.iter().max().map_or(0, |&last| last as usize + 1);
    let mut parts = Vec::with_capacity(chunks);
    for chunk in 0..chunks {
        let members: Vec<usize> = (0..instance.len()).filter(|&i| chunk_of[i] as usize == chunk).collect();
        let part = instance.subset(&members);
        let bound = part.bound()?;
        let goal = Goal { bound, enough: bound, limit: Some(limit), effort };
        let found = line::pack(&part, goal, budget)?;
        if found.layout.heights.len() > 1 {
            return None;
        }
        parts.push((members, found.layout));
    }
    Some(split::join(instance.len(), &parts))
}

fn costlier(a: Method, b: Method) -> Method {
    if b.cost() >= a.cost() { b } else { a }
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
