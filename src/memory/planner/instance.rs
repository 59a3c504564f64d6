//! One line of memory to pack, with time reduced to what matters.
//!
//! Lifetimes are intervals, so items that are pairwise alive together are all alive at one instant (Helly). Time is cut into
//! *slices*, one per maximal set of items alive together; two items may not share bytes exactly when they share a slice.

use super::bound::common_alignment;
use super::problem::Item;

/// Items of one arena by position, with lifetimes as half-open ranges of slices. Items of size 0 take part like any other.
#[derive(Clone, Debug, Default)]
pub(super) struct Instance {
    /// First slice of each item.
    pub first: Vec<u32>,
    /// One past the last slice of each item.
    pub last: Vec<u32>,
    /// Bytes of each item.
    pub size: Vec<u64>,
    /// Alignment of each item in bytes.
    pub alignment: Vec<u64>,
    /// Offset of each item that must not move.
    pub fixed: Vec<Option<u64>>,
    /// Number of slices.
    pub slices: usize,
    /// All offsets are multiples of this many bytes.
    pub unit: u64,
}

impl Instance {
    /// The instance of `items`, in their order.
    pub fn new(items: &[&Item]) -> Self {
        let lifetimes: Vec<(u64, u64)> = items.iter().map(|item| (item.lower, item.upper)).collect();
        let (first, last, slices) = slices_of(&lifetimes);
        Self {
            first,
            last,
            size: items.iter().map(|item| item.size).collect(),
            alignment: items.iter().map(|item| item.alignment).collect(),
            fixed: items.iter().map(|item| item.fixed.map(|place| place.offset)).collect(),
            slices,
            unit: common_alignment(items.iter().map(|item| item.alignment)),
        }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.size.len()
    }

    /// Whether two items are alive together.
    pub fn together(&self, a: usize, b: usize) -> bool {
        self.first[a] < self.last[b] && self.first[b] < self.last[a]
    }
}

/// Ranges of maximal slices for half-open lifetimes, and their number. A slice closes at the first end after a start.
fn slices_of(lifetimes: &[(u64, u64)]) -> (Vec<u32>, Vec<u32>, usize) {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * lifetimes.len());
    for (index, &(lower, upper)) in lifetimes.iter().enumerate() {
        events.push((lower, true, index));
        events.push((upper, false, index));
    }
    events.sort_unstable();
    let (mut first, mut last) = (vec![0; lifetimes.len()], vec![0; lifetimes.len()]);
    let (mut closed, mut open) = (0u32, false);
    for (_, starts, index) in events {
        if starts {
            first[index] = closed;
            open = true;
        } else {
            closed += u32::from(open);
            open = false;
            last[index] = closed;
        }
    }
    (first, last, closed as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_keep_exactly_the_overlaps() {
        let lifetimes = [(0, 3), (3, 9), (0, 9), (9, 21), (0, 21), (4, 5), (20, 22)];
        let (first, last, slices) = slices_of(&lifetimes);
        assert_eq!(slices, 3);
        for (a, x) in lifetimes.iter().enumerate() {
            for (b, y) in lifetimes.iter().enumerate() {
                let truth = x.0 < y.1 && y.0 < x.1;
                assert_eq!(first[a] < last[b] && first[b] < last[a], truth, "{x:?} {y:?}");
            }
        }
    }
}
