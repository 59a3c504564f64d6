//! Address-ordered free list: adjacent holes merge, and a [`Fit`] selects the hole for a block.

use std::collections::BTreeSet;

use super::Padded;
use super::tiling::{End, FreeIndex, Tile, Tiling};
use crate::memory::AllocError;

/// The rule that selects the hole for a block. Holes are ordered by page, then offset. Among equal candidates
/// the lowest is taken, except that `Ends` takes the highest for a block at the high end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The lowest hole that is large enough. Time grows with the number of holes.
    First,
    /// The smallest hole that is large enough.
    Best,
    /// The largest hole.
    Worst,
    /// The next large enough hole after the last allocated block, wrapping around at the end. Time grows with
    /// the number of holes, as for `First`.
    Next,
    /// Best fit from two ends: blocks of 1/2048 to 1/80 of the capacity are cut from the low end of their
    /// hole, smaller and larger blocks from the high end. This separates sizes that seldom fill each other's
    /// holes.
    Ends,
}

/// A strategy that keeps its holes in an ordered set.
pub type FreeList = Tiling<Holes>;

impl FreeList {
    /// Creates a free list without pages. `granule` is in bytes: every offset and size is a multiple of it.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64, fit: Fit) -> Result<Self, AllocError> {
        Self::with_min_split(granule, fit, 0)
    }

    /// As [`new`](Self::new), but a hole is split only if at least `min_split` bytes remain. A smaller
    /// remainder becomes part of the block.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub(crate) fn with_min_split(granule: u64, fit: Fit, min_split: u64) -> Result<Self, AllocError> {
        let holes = Holes { fit, middle: (2048, 80), set: BTreeSet::new(), cursor: (0, 0) };
        Self::with_index(granule, min_split, holes)
    }

    /// As [`new`](Self::new) with [`Fit::Ends`], but the blocks at the low ends are those from `1 / middle.0` to
    /// `1 / middle.1` of the capacity.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn two_ended(granule: u64, middle: (u64, u64)) -> Result<Self, AllocError> {
        let holes = Holes { fit: Fit::Ends, middle, set: BTreeSet::new(), cursor: (0, 0) };
        Self::with_index(granule, 0, holes)
    }
}

/// Sort key of a hole: size for `Best`, `Worst` and `Ends`, else 0; page; offset; slot. One ordered set
/// serves every fit.
type Key = (u64, u32, u64, u32);

/// The holes of a [`FreeList`].
#[derive(Debug)]
pub struct Holes {
    fit: Fit,
    /// For `Ends`: blocks between these fractions of the capacity are cut from the low end.
    middle: (u64, u64),
    set: BTreeSet<Key>,
    /// Page and offset from which `Next` continues.
    cursor: (u32, u64),
}

impl Holes {
    fn end(&self, size: u64, capacity: u64) -> End {
        let (small, large) = self.middle;
        let is_outside = size < capacity / small.max(1) || size >= capacity / large.max(1);
        if self.fit == Fit::Ends && is_outside { End::High } else { End::Low }
    }

    fn key(&self, tiles: &[Tile], slot: u32) -> Key {
        let Tile { offset, size, page, .. } = tiles[slot as usize];
        match self.fit {
            Fit::Best | Fit::Worst | Fit::Ends => (size, page, offset, slot),
            Fit::First | Fit::Next => (0, page, offset, slot),
        }
    }
}

impl FreeIndex for Holes {
    fn insert(&mut self, tiles: &mut [Tile], slot: u32) {
        let key = self.key(tiles, slot);
        self.set.insert(key);
    }

    fn remove(&mut self, tiles: &mut [Tile], slot: u32) {
        let key = self.key(tiles, slot);
        self.set.remove(&key);
    }

    fn find(&mut self, tiles: &[Tile], want: Padded, capacity: u64) -> Option<(u32, End)> {
        let end = self.end(want.size, capacity);
        let fits = |key: &&Key| tiles[key.3 as usize].fit(want, end).is_some();
        let least = |size| (size, 0, 0, 0);
        let most = |size| (size, u32::MAX, u64::MAX, u32::MAX);
        let found = match self.fit {
            Fit::First => self.set.iter().find(fits),
            Fit::Best => self.set.range(least(want.size)..).find(fits),
            Fit::Ends => {
                let lowest = self.set.range(least(want.size)..).find(fits)?;
                let same = self.set.range(least(lowest.0)..=most(lowest.0));
                if end == End::High { same.rev().find(|key| fits(key)) } else { Some(lowest) }
            }
            Fit::Worst => {
                let largest = self.set.last()?.0;
                // With a large alignment the largest hole may not fit although a smaller one does.
                let lowest = self.set.range(least(largest)..).find(fits);
                lowest.or_else(|| self.set.range(least(want.size)..).rev().find(fits))
            }
            Fit::Next => {
                let from = (0, self.cursor.0, self.cursor.1, 0);
                self.set.range(from..).find(fits).or_else(|| self.set.range(..from).find(fits))
            }
        };
        let &(_, page, offset, slot) = found?;
        self.cursor = (page, offset);
        Some((slot, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Strategy;

    /// One page with holes of 3, 1, 4 and 2 units at offsets 0, 4, 6 and 11; a unit is 256 bytes.
    fn with_holes(fit: Fit) -> FreeList {
        let mut list = FreeList::new(256, fit).expect("256 is a power of two");
        list.add_page(0, 13 * 256, 0).expect("a fresh page");
        let blocks: Vec<_> = [3, 1, 1, 1, 4, 1, 2].map(|n| list.alloc(n * 256, 1).expect("room")).to_vec();
        for (i, block) in blocks.iter().enumerate() {
            if i % 2 == 0 {
                list.free(block.handle).expect("live");
            }
        }
        list
    }

    #[test]
    fn each_fit_takes_its_hole() {
        let cases = [(Fit::First, 0), (Fit::Best, 11), (Fit::Worst, 6)];
        for (fit, unit) in cases {
            let mut list = with_holes(fit);
            assert_eq!(list.alloc(512, 1).expect("room").span.offset, unit * 256, "{fit:?}");
        }
        let mut next = with_holes(Fit::Next);
        let offsets: Vec<_> = (0..4).map(|_| next.alloc(512, 1).expect("room").span.offset / 256).collect();
        assert_eq!(offsets, [11, 0, 6, 8], "after the last block, around the end, and on");
    }

    #[test]
    fn two_ends_keep_sizes_apart() {
        let mut list = FreeList::new(1, Fit::Ends).expect("power of two");
        list.add_page(0, 1 << 20, 0).expect("fresh page");
        let offsets = [511, 512, 1 << 13, 1 << 14].map(|n| list.alloc(n, 1).expect("room").span.offset);
        assert_eq!(offsets, [(1 << 20) - 511, 0, 512, (1 << 20) - 511 - (1 << 14)]);
        let aligned = list.alloc(100, 256).expect("room").span;
        assert_eq!(aligned.offset % 256, 0);
        assert!(aligned.offset > 1 << 19, "at the high end too: {aligned:?}");
    }

    #[test]
    fn a_small_remainder_stays_with_the_block() {
        let mut list = FreeList::with_min_split(256, Fit::Best, 1024).expect("power of two");
        list.add_page(0, 4096, 0).expect("fresh page");
        let large = list.alloc(4096 - 768, 1).expect("room");
        assert_eq!(large.span.size, 4096);
        list.free(large.handle).expect("live");
        assert_eq!(list.alloc(4096 - 1024, 1).expect("room").span.size, 3072);
    }

    #[test]
    fn worst_fit_falls_back_when_the_largest_hole_is_not_aligned() {
        let mut list = FreeList::new(256, Fit::Worst).expect("power of two");
        list.add_page(0, 1024, 0).expect("fresh page");
        let first = list.alloc(512, 1).expect("room");
        list.alloc(256, 1).expect("room");
        list.free(first.handle).expect("live");
        list.add_page(1, 512, 0).expect("fresh page");
        assert_eq!(list.alloc(512, 1024).expect("offset 0 is aligned").span.offset, 0);
        assert_eq!(
            list.alloc(256, 512).expect("room").span,
            crate::memory::Span { page: 1, offset: 0, size: 256 }
        );
    }
}
