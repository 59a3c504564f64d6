//! The lower bound: no packing is lower than the bytes alive at any instant.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::Item;

/// Returns a lower bound in bytes for the height of any packing of `items` into one line of memory, or `None`
/// if it does not fit 64 bits.
///
/// At every instant the items alive are stacked without overlap. Let `g` divide the alignments of some of them:
/// their offsets are multiples of `g`, so each of them but the topmost takes its size rounded up to `g`. The bound
/// is the most that this gives for any instant and for `g` the greatest common divisor of all alignments, with all
/// items, or one of the alignments, with the items whose alignments are its multiples. The height is also at least
/// the end of every fixed item.
pub fn lower_bound<'a>(items: impl IntoIterator<Item = &'a Item>) -> Option<u64> {
    lower_bound_in_chunks(items, 1)
}

/// Returns the lower bound for the sum of the heights of `chunks` lines, among which the items may be
/// distributed freely: the topmost item of each line takes only its unrounded size.
pub(super) fn lower_bound_in_chunks<'a>(
    items: impl IntoIterator<Item = &'a Item>,
    chunks: usize,
) -> Option<u64> {
    let load = |item: &Item| Load {
        lower: item.lower,
        upper: item.upper,
        size: item.size,
        alignment: item.alignment,
        fixed: item.fixed.map(|place| place.offset),
    };
    bound_of(items.into_iter().map(load), chunks)
}

/// The fields of an item that the bound depends on.
pub(super) struct Load {
    pub lower: u64,
    pub upper: u64,
    pub size: u64,
    pub alignment: u64,
    pub fixed: Option<u64>,
}

/// Number of different alignments, the largest, that [`bound_of`] considers besides their common divisor.
const MOST_ALIGNMENTS: usize = 32;

/// Computes [`lower_bound_in_chunks`] for any source of items.
pub(super) fn bound_of(items: impl IntoIterator<Item = Load>, chunks: usize) -> Option<u64> {
    let items: Vec<Load> = items.into_iter().filter(|item| item.size > 0).collect();
    let end = |item: &Load| item.fixed.map_or(0, u128::from) + u128::from(item.size);
    let ends = items.iter().map(end).max().unwrap_or(0);
    let different: BTreeSet<u64> = items.iter().map(|item| item.alignment).collect();
    let unit = common_alignment(different.iter().copied());
    let units = different.into_iter().filter(|&alignment| alignment > unit).rev().take(MOST_ALIGNMENTS);
    let stacks = units.chain([unit]).map(|unit| stack(&items, unit, chunks));
    u64::try_from(stacks.max().unwrap_or(0).max(ends)).ok()
}

/// Returns the largest number of bytes that the items whose alignment is a multiple of `unit` take at an instant,
/// each rounded up to `unit` but the topmost of each chunk.
fn stack(items: &[Load], unit: u64, chunks: usize) -> u128 {
    let mut highest: u128 = 0;
    let mut events: Vec<(u64, bool, u128, u64)> = Vec::with_capacity(2 * items.len());
    for item in items.iter().filter(|item| item.alignment.is_multiple_of(unit)) {
        let padded = u128::from(item.size).next_multiple_of(u128::from(unit));
        // The padding is less than `unit`, which is 64 bits wide.
        let padding = (padded - u128::from(item.size)) as u64;
        events.push((item.lower, true, padded, padding));
        events.push((item.upper, false, padded, padding));
    }
    events.sort_unstable();
    let mut live: u128 = 0;
    let mut paddings = BTreeMap::<u64, usize>::new();
    for (_, starts, padded, padding) in events {
        if starts {
            live += padded;
            *paddings.entry(padding).or_default() += 1;
            highest = highest.max(live - largest(&paddings, chunks));
        } else {
            live -= padded;
            if let Some(count) = paddings.get_mut(&padding) {
                *count -= 1;
                if *count == 0 {
                    paddings.remove(&padding);
                }
            }
        }
    }
    highest
}

/// The sum of the `count` largest of `paddings`, which says how often each occurs.
fn largest(paddings: &BTreeMap<u64, usize>, count: usize) -> u128 {
    let (mut sum, mut left) = (0, count);
    for (&padding, &times) in paddings.iter().rev().take_while(|(padding, _)| **padding > 0) {
        let taken = times.min(left);
        sum += u128::from(padding) * taken as u128;
        left -= taken;
        if left == 0 {
            break;
        }
    }
    sum
}

/// The greatest common divisor of `alignments`; 1 if there are none.
pub(super) fn common_alignment(alignments: impl IntoIterator<Item = u64>) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    alignments.into_iter().fold(0, gcd).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_lifetimes_do_not_add_up() {
        let items = [Item::new("a", 0, 5, 30), Item::new("b", 5, 9, 40), Item::new("c", 4, 6, 1)];
        assert_eq!(lower_bound(&items), Some(41));
        assert_eq!(lower_bound([]), Some(0));
    }

    #[test]
    fn all_items_but_the_topmost_are_rounded_up() {
        let items = [Item::new("a", 0, 5, 10).aligned(16), Item::new("b", 0, 5, 3).aligned(32)];
        assert_eq!(lower_bound(&items), Some(16 + 16 - 13));
        assert_eq!(common_alignment([256, 96]), 32);
    }

    #[test]
    fn items_of_a_common_alignment_are_rounded_up_to_it() {
        let item = |size, alignment| Item::new("a", 0, 5, size).aligned(alignment);
        // Two of the first three at multiples of 64; the fourth can lie between them.
        let items = [item(10, 64), item(20, 64), item(7, 128), item(30, 1)];
        assert_eq!(lower_bound(&items), Some(64 + 64 + 7));
        assert_eq!(lower_bound(&[item(10, 64), item(1000, 1)]), Some(1010));
        let many: Vec<Item> = (1..2000).map(|i| item(1, i)).collect();
        assert!(lower_bound(&many).is_some_and(|bound| bound >= 1999));
        assert_eq!(lower_bound(&[item(3, 0), item(4, 2)]), Some(3 + 4));
    }

    #[test]
    fn each_chunk_has_an_unrounded_topmost_item() {
        let item = |size| Item::new("a", 0, 5, size).aligned(16);
        let items = [item(10), item(3), item(3), item(16)];
        let bounds = [1, 2, 3, 4].map(|chunks| lower_bound_in_chunks(&items, chunks));
        assert_eq!(bounds, [64 - 13, 64 - 13 - 13, 64 - 13 - 13 - 6, 32].map(Some));
    }

    #[test]
    fn sums_beyond_64_bits_are_none_but_single_items_are_not() {
        let giant = |name, lower, upper| Item::new(name, lower, upper, u64::MAX);
        assert_eq!(lower_bound(&[giant("a", 0, 1), giant("b", 1, 2)]), Some(u64::MAX));
        assert_eq!(lower_bound(&[giant("a", 0, 2), giant("b", 1, 2)]), None);
    }

    #[test]
    fn bound_includes_the_end_of_a_fixed_item() {
        let items = [Item::new("a", 0, 1, 8).fixed_at(0, 100)];
        assert_eq!(lower_bound(&items), Some(108));
    }
}
