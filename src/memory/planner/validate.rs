//! Checks whether a packing is valid, and if not, which rule is broken by which item. Shares only types with
//! the solver, so that a mistake in the solver cannot hide here.

use std::collections::BTreeMap;

use super::problem::{Item, Problem, Solution};

/// The first broken rule that was found; items are given by their positions in the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The number of placements differs from the number of items.
    #[error("{items} items but {placements} placements")]
    Count {
        /// Number of items.
        items: usize,
        /// Number of placements.
        placements: usize,
    },
    /// The offset is not a multiple of the item's alignment.
    #[error("item {item} lies at offset {offset}, which is no multiple of its alignment {alignment}")]
    Alignment {
        /// The item.
        item: usize,
        /// Its offset in bytes.
        offset: u64,
        /// Its alignment in bytes.
        alignment: u64,
    },
    /// The item ends beyond its arena, or its arena does not exist.
    #[error("item {item} does not end within arena {arena}, whose height is {height:?}")]
    OutsideArena {
        /// The item.
        item: usize,
        /// The arena it was put in.
        arena: u32,
        /// The height of that arena in bytes, if there is such an arena.
        height: Option<u64>,
    },
    /// The item is larger than one binding may be.
    #[error("item {item} has {size} bytes, more than one binding's {limit}")]
    LargerThanBinding {
        /// The item.
        item: usize,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The arena is larger than one buffer may be.
    #[error("arena {arena} has {height} bytes, more than the limit of {limit}")]
    ArenaTooLarge {
        /// The arena.
        arena: usize,
        /// Its height in bytes.
        height: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// An item with a fixed place lies elsewhere.
    #[error("item {item} was moved from its fixed place")]
    Moved {
        /// The item.
        item: usize,
    },
    /// Items of different arenas were put in the same arena.
    #[error("items {first} and {second} belong to different arenas and were both put in arena {arena}")]
    MixedArenas {
        /// An item.
        first: usize,
        /// Another one.
        second: usize,
        /// The arena they share.
        arena: u32,
    },
    /// Two items that are alive together share bytes.
    #[error("items {first} and {second} are alive together and share bytes")]
    Overlap {
        /// One item.
        first: usize,
        /// The other.
        second: usize,
    },
    /// The packing is lower than the proved lower bound.
    #[error("the packing takes {height} bytes, less than the {lower_bound} that were proved to be the least")]
    BelowBound {
        /// Heights of all arenas together in bytes.
        height: u64,
        /// The bound in bytes.
        lower_bound: u64,
    },
}

/// Checks every rule: one placement per item, alignment, limits, fixed places, separate arenas, and that no
/// two items that are alive together share bytes. Takes O(n log n) time.
///
/// # Errors
/// The first [`Violation`] found.
pub fn validate(problem: &Problem, solution: &Solution) -> Result<(), Violation> {
    let (items, placements) = (&problem.items, &solution.placements);
    if items.len() != placements.len() {
        return Err(Violation::Count { items: items.len(), placements: placements.len() });
    }
    for (arena, &height) in solution.arenas.iter().enumerate() {
        if let Some(limit) = problem.max_arena.filter(|&limit| height > limit) {
            return Err(Violation::ArenaTooLarge { arena, height, limit });
        }
    }
    let mut owner: BTreeMap<u32, usize> = BTreeMap::new();
    for (item, (wanted, place)) in items.iter().zip(placements).enumerate() {
        if place.offset.checked_rem(wanted.alignment) != Some(0) {
            return Err(Violation::Alignment { item, offset: place.offset, alignment: wanted.alignment });
        }
        let height = solution.arenas.get(place.arena as usize).copied();
        let end = place.offset.checked_add(wanted.size);
        if end.is_none() || height.is_none() || end > height {
            return Err(Violation::OutsideArena { item, arena: place.arena, height });
        }
        if let Some(limit) = problem.max_item.filter(|&limit| wanted.size > limit) {
            return Err(Violation::LargerThanBinding { item, size: wanted.size, limit });
        }
        if wanted.fixed.is_some_and(|fixed| fixed != *place) {
            return Err(Violation::Moved { item });
        }
        let first = *owner.entry(place.arena).or_insert(item);
        if items[first].arena != wanted.arena {
            return Err(Violation::MixedArenas { first, second: item, arena: place.arena });
        }
    }
    no_overlap(problem, solution)
}

/// Sweeps over time with the set of byte ranges in use: at every start, only the neighbours in address order
/// can overlap.
fn no_overlap(problem: &Problem, solution: &Solution) -> Result<(), Violation> {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * problem.items.len());
    let occupies = |item: &Item| item.size > 0 && item.lower < item.upper;
    for (index, item) in problem.items.iter().enumerate().filter(|(_, item)| occupies(item)) {
        events.push((item.lower, true, index));
        events.push((item.upper, false, index));
    }
    // Half-open lifetimes: at one instant, ends come before starts.
    events.sort_unstable();
    let mut in_use: BTreeMap<(u32, u64), usize> = BTreeMap::new();
    for (_, starts, index) in events {
        let place = solution.placements[index];
        let key = (place.arena, place.offset);
        if !starts {
            in_use.remove(&key);
            continue;
        }
        let end = place.offset + problem.items[index].size;
        let below = in_use.range(..=key).next_back().filter(|((arena, offset), other)| {
            *arena == place.arena && offset + problem.items[**other].size > place.offset
        });
        let above =
            in_use.range(key..).next().filter(|((arena, offset), _)| *arena == place.arena && *offset < end);
        if let Some((_, &other)) = below.or(above) {
            return Err(Violation::Overlap { first: other.min(index), second: other.max(index) });
        }
        in_use.insert(key, index);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::problem::Placement;
    use super::*;

    fn pair(second: (u64, u64), offset: u64) -> (Problem, Solution) {
        let problem = Problem::new(vec![
            Item::new("a", 0, 10, 100).aligned(4),
            Item::new("b", second.0, second.1, 50).aligned(4),
        ]);
        let placements = vec![Placement::default(), Placement { arena: 0, offset }];
        (problem, Solution { placements, arenas: vec![150] })
    }

    #[test]
    fn neighbours_in_time_may_share_bytes_and_neighbours_in_space_may_touch() {
        for (lifetime, offset) in [((10, 11), 0), ((3, 4), 100), ((0, 10), 100)] {
            let (problem, solution) = pair(lifetime, offset);
            assert_eq!(validate(&problem, &solution), Ok(()));
        }
    }

    #[test]
    fn each_violation_is_reported() {
        let (problem, mut solution) = pair((9, 12), 96);
        assert_eq!(validate(&problem, &solution), Err(Violation::Overlap { first: 0, second: 1 }));
        solution.placements[1].offset = 102;
        assert!(matches!(
            validate(&problem, &solution),
            Err(Violation::Alignment { item: 1, offset: 102, .. })
        ));
        solution.placements[1].offset = 104;
        assert!(matches!(validate(&problem, &solution), Err(Violation::OutsideArena { item: 1, .. })));
        solution.placements[1] = Placement { arena: 1, offset: 0 };
        assert!(matches!(validate(&problem, &solution), Err(Violation::OutsideArena { height: None, .. })));
        solution.placements.pop();
        assert_eq!(validate(&problem, &solution), Err(Violation::Count { items: 2, placements: 1 }));
    }

    #[test]
    fn limits_fixed_places_and_arenas_are_validated() {
        let (mut problem, solution) = pair((0, 10), 100);
        problem.max_arena = Some(149);
        assert!(matches!(validate(&problem, &solution), Err(Violation::ArenaTooLarge { height: 150, .. })));
        problem.max_arena = None;
        problem.max_item = Some(99);
        assert!(matches!(validate(&problem, &solution), Err(Violation::LargerThanBinding { item: 0, .. })));
        problem.max_item = None;
        problem.items[1].fixed = Some(Placement { arena: 0, offset: 96 });
        assert_eq!(validate(&problem, &solution), Err(Violation::Moved { item: 1 }));
        problem.items[1].fixed = None;
        problem.items[1].arena = 1;
        assert_eq!(
            validate(&problem, &solution),
            Err(Violation::MixedArenas { first: 0, second: 1, arena: 0 })
        );
    }

    #[test]
    fn an_item_hidden_inside_a_larger_one_is_found() {
        let problem = Problem::new(vec![
            Item::new("outer", 0, 9, 100),
            Item::new("inner", 2, 3, 0),
            Item::new("low", 2, 3, 10),
        ]);
        let at = |offset| Placement { arena: 0, offset };
        let solution = Solution { placements: vec![at(0), at(50), at(90)], arenas: vec![100] };
        assert_eq!(validate(&problem, &solution), Err(Violation::Overlap { first: 0, second: 2 }));
    }
}
