//! The problem of packing one line of memory, with time compressed to slices.
//!
//! Lifetimes are intervals, so items that are pairwise alive together are all alive at one instant (Helly).
//! Time is cut into *slices*, one per maximal set of items alive together. Two items conflict exactly when
//! they share a slice.

use super::bound::{Load, bound_of, common_alignment};
use super::greedy::Fit;
use super::occupancy::{Occupancy, Request};
use super::problem::Item;

/// Items of one arena by position, with lifetimes as half-open ranges of slices. Items of size 0 are
/// included.
#[derive(Clone, Debug, Default)]
pub(super) struct Instance {
    /// First slice of each item.
    pub first: Vec<u32>,
    /// One past the last slice of each item.
    pub last: Vec<u32>,
    /// Length of each lifetime in the caller's time.
    pub duration: Vec<u64>,
    /// Bytes of each item.
    pub size: Vec<u64>,
    /// Alignment of each item in bytes.
    pub alignment: Vec<u64>,
    /// Offset of each item that must not move.
    pub fixed: Vec<Option<u64>>,
    /// Items with the same number have the same lifetime and alignment and differ at most in size: a slice
    /// that keeps one of them from lying lower keeps all of them.
    pub kin: Vec<u32>,
    /// Number of slices.
    pub slices: usize,
    /// All offsets are multiples of this many bytes.
    pub unit: u64,
    obstacles: Option<Occupancy>,
}

impl Instance {
    /// Creates the instance of `items`, in their order.
    pub(super) fn new(items: &[&Item]) -> Self {
        let lifetimes: Vec<(u64, u64)> = items.iter().map(|item| (item.lower, item.upper)).collect();
        let (first, last, slices) = slices_of(&lifetimes);
        let mut instance = Self {
            first,
            last,
            duration: items.iter().map(|item| item.upper - item.lower).collect(),
            size: items.iter().map(|item| item.size).collect(),
            alignment: items.iter().map(|item| item.alignment).collect(),
            fixed: items.iter().map(|item| item.fixed.map(|place| place.offset)).collect(),
            kin: Vec::new(),
            slices,
            unit: common_alignment(items.iter().filter(|item| item.size > 0).map(|item| item.alignment)),
            obstacles: None,
        };
        instance.raise_obstacles();
        instance.find_kin();
        instance
    }

    /// Returns an instance of only the items at `members`, in that order.
    pub(super) fn subset(&self, members: &[usize]) -> Self {
        let lifetimes: Vec<(u64, u64)> =
            members.iter().map(|&i| (u64::from(self.first[i]), u64::from(self.last[i]))).collect();
        let (first, last, slices) = slices_of(&lifetimes);
        let mut instance = Self {
            first,
            last,
            duration: members.iter().map(|&i| self.duration[i]).collect(),
            size: members.iter().map(|&i| self.size[i]).collect(),
            alignment: members.iter().map(|&i| self.alignment[i]).collect(),
            fixed: members.iter().map(|&i| self.fixed[i]).collect(),
            kin: Vec::new(),
            slices,
            unit: self.unit,
            obstacles: None,
        };
        instance.raise_obstacles();
        instance.find_kin();
        instance
    }

    /// Returns the same items followed by one fixed item at each of `walls`, one unit high and alive in all
    /// slices.
    pub(super) fn with_walls(&self, walls: &[u64]) -> Self {
        let mut walled = self.clone();
        for &wall in walls {
            walled.first.push(0);
            walled.last.push(self.slices as u32);
            walled.duration.push(self.duration.iter().copied().max().unwrap_or(1));
            walled.size.push(self.unit);
            walled.alignment.push(self.unit);
            walled.fixed.push(Some(wall));
        }
        walled.raise_obstacles();
        walled.find_kin();
        walled
    }

    fn raise_obstacles(&mut self) {
        let mut obstacles = Occupancy::new(self.slices);
        for (i, offset) in self.fixed.iter().enumerate() {
            if let Some(offset) = *offset {
                obstacles.take(self.first[i], self.last[i], offset, offset + self.size[i]);
            }
        }
        self.obstacles = self.fixed.iter().any(Option::is_some).then_some(obstacles);
    }

    /// With obstacles, the size decides where an item fits, so that every item is its own kin.
    fn find_kin(&mut self) {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        self.kin = order.clone();
        if self.obstacles.is_some() {
            return;
        }
        let key = |i: u32| (self.first[i as usize], self.last[i as usize], self.alignment[i as usize]);
        order.sort_unstable_by_key(|&i| (key(i), i));
        for pair in order.windows(2) {
            if key(pair[0]) == key(pair[1]) {
                self.kin[pair[1] as usize] = self.kin[pair[0] as usize];
            }
        }
    }

    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.size.len()
    }

    /// Returns the slices that item `i` is alive in.
    pub(super) fn span(&self, i: usize) -> std::ops::Range<usize> {
        self.first[i] as usize..self.last[i] as usize
    }

    /// Whether two items are alive together.
    pub(super) fn together(&self, a: usize, b: usize) -> bool {
        self.first[a] < self.last[b] && self.first[b] < self.last[a]
    }

    /// Returns the lowest offset at or above `from` at which item `i` is aligned and clear of every fixed
    /// item. Saturates at `u64::MAX`, where no item fits.
    pub(super) fn lift(&self, i: usize, from: u64) -> u64 {
        match &self.obstacles {
            None => from.checked_next_multiple_of(self.alignment[i]),
            Some(obstacles) => obstacles.room(from, self.request(i, Fit::First, u64::MAX)),
        }
        .unwrap_or(u64::MAX)
    }

    /// Returns the request for room for item `i`.
    pub(super) fn request(&self, i: usize, fit: Fit, limit: u64) -> Request {
        let (first, last) = (self.first[i], self.last[i]);
        Request { first, last, size: self.size[i], alignment: self.alignment[i], fit, limit }
    }

    /// Returns the size of item `i` rounded up to the unit, so that an item on top of it is at a multiple of
    /// the unit.
    pub(super) fn padded(&self, i: usize) -> u64 {
        self.size[i].saturating_add((self.unit - self.size[i] % self.unit) % self.unit)
    }

    /// Returns a lower bound in bytes for the height of a packing of this line; `None` if it does not fit 64
    /// bits.
    pub(super) fn bound(&self) -> Option<u64> {
        let load = |i: usize| Load {
            lower: self.first[i].into(),
            upper: self.last[i].into(),
            size: self.size[i],
            alignment: self.alignment[i],
            fixed: self.fixed[i],
        };
        bound_of((0..self.len()).map(load), 1)
    }

    /// Returns the positions of the items that are not fixed.
    pub(super) fn movable(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(|&i| self.fixed[i].is_none())
    }

    /// Whether the sum of all sizes, alignments and fixed offsets is below 2^62, so that unchecked arithmetic
    /// is safe.
    pub(super) fn is_modest(&self) -> bool {
        let most = |i: usize| {
            u128::from(self.size[i]) + u128::from(self.alignment[i]) + u128::from(self.fixed[i].unwrap_or(0))
        };
        (0..self.len()).map(most).sum::<u128>() < 1 << 62
    }
}

/// Returns the range of slices of each half-open lifetime, and the number of slices. A slice closes at the
/// first end after a start.
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

    #[test]
    fn lifting_steps_over_fixed_items_and_keeps_alignment() {
        let items = [Item::new("free", 0, 2, 5).aligned(4), Item::new("held", 1, 3, 10).fixed_at(0, 6)];
        let instance = Instance::new(&items.iter().collect::<Vec<_>>());
        assert_eq!([0, 1, 17, u64::MAX - 2].map(|from| instance.lift(0, from)), [0, 16, 20, u64::MAX]);
    }
}
