//! Checks a problem for user errors before any work is done.

use super::error::PackError;
use super::problem::{Item, Problem};

/// Number of arenas that items may name.
pub(super) const NAMED_ARENAS: u32 = 1 << 16;

/// Checks every item against the rules that do not depend on the packing.
pub(super) fn check(problem: &Problem) -> Result<(), PackError> {
    for (index, item) in problem.items.iter().enumerate() {
        let name = || item.name.clone();
        if item.lower >= item.upper {
            let Item { lower, upper, .. } = *item;
            return Err(PackError::EmptyLifetime { index, name: name(), lower, upper });
        }
        if item.alignment == 0 {
            return Err(PackError::ZeroAlignment { index, name: name() });
        }
        for (what, limit) in [("binding", problem.max_item), ("arena", problem.max_arena)] {
            if let Some(limit) = limit.filter(|&limit| item.size > limit) {
                return Err(PackError::ItemTooLarge { index, name: name(), size: item.size, what, limit });
            }
        }
        if item.arena >= NAMED_ARENAS {
            let (arena, limit) = (item.arena, NAMED_ARENAS);
            return Err(PackError::TooManyArenas { index, name: name(), arena, limit });
        }
        check_fixed(problem, index, item)?;
    }
    check_fixed_pairs(problem)
}

fn check_fixed(problem: &Problem, index: usize, item: &Item) -> Result<(), PackError> {
    let Some(place) = item.fixed else { return Ok(()) };
    let end = place.offset.checked_add(item.size);
    let why = if place.arena != item.arena {
        "the item belongs to another arena"
    } else if place.offset % item.alignment != 0 {
        "the offset is no multiple of the item's alignment"
    } else if end.is_none() {
        "it would end beyond 2^64 - 1"
    } else if problem.max_arena.is_some() && end > problem.max_arena {
        "it would end beyond the largest arena allowed"
    } else {
        return Ok(());
    };
    let (name, arena, offset) = (item.name.clone(), place.arena, place.offset);
    Err(PackError::BadFixedPlace { index, name, arena, offset, why })
}

/// Checks that fixed items that are alive together do not share bytes. Fixed items are few or mostly disjoint
/// in address: after sorting by address, only items that share bytes are compared.
fn check_fixed_pairs(problem: &Problem) -> Result<(), PackError> {
    let mut fixed: Vec<(u32, u64, u64, usize)> = Vec::new();
    for (index, item) in problem.items.iter().enumerate().filter(|(_, item)| item.size > 0) {
        if let Some(place) = item.fixed {
            fixed.push((place.arena, place.offset, place.offset + item.size, index));
        }
    }
    fixed.sort_unstable();
    for (position, &(arena, _, end, first)) in fixed.iter().enumerate() {
        let sharing = fixed[position + 1..].iter().take_while(|other| other.0 == arena && other.1 < end);
        for &(.., second) in sharing {
            let (a, b) = (&problem.items[first], &problem.items[second]);
            if a.lower < b.upper && b.lower < a.upper {
                return Err(PackError::FixedOverlap { first: first.min(second), second: first.max(second) });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(items: Vec<Item>) -> Result<(), PackError> {
        check(&Problem { items, max_item: Some(100), max_arena: Some(80) })
    }

    #[test]
    fn each_invalid_problem_has_its_error() {
        let item = |size| Item::new("w", 0, 4, size);
        assert_eq!(of(vec![item(80), item(0)]), Ok(()));
        assert!(matches!(of(vec![item(81)]), Err(PackError::ItemTooLarge { what: "arena", limit: 80, .. })));
        assert!(matches!(of(vec![item(101)]), Err(PackError::ItemTooLarge { what: "binding", .. })));
        assert!(matches!(of(vec![Item::new("w", 4, 4, 1)]), Err(PackError::EmptyLifetime { .. })));
        assert!(matches!(of(vec![item(1).aligned(0)]), Err(PackError::ZeroAlignment { index: 0, .. })));
        assert!(matches!(of(vec![item(1).in_arena(1 << 16)]), Err(PackError::TooManyArenas { .. })));
    }

    #[test]
    fn fixed_places_must_be_possible() {
        let fixed = |arena, offset| Item::new("w", 0, 4, 16).aligned(8).fixed_at(arena, offset);
        assert_eq!(of(vec![fixed(0, 0), fixed(0, 16), fixed(1, 8)]), Ok(()));
        assert!(matches!(of(vec![fixed(0, 4)]), Err(PackError::BadFixedPlace { .. })));
        assert!(matches!(of(vec![fixed(0, 72)]), Err(PackError::BadFixedPlace { .. })));
        assert!(matches!(of(vec![fixed(0, u64::MAX - 7)]), Err(PackError::BadFixedPlace { .. })));
        assert!(matches!(of(vec![fixed(0, 0).in_arena(2)]), Err(PackError::BadFixedPlace { .. })));
        let clash = of(vec![fixed(0, 0), fixed(0, 32), fixed(0, 8)]);
        assert_eq!(clash, Err(PackError::FixedOverlap { first: 0, second: 2 }));
    }
}
