//! Constant-time strategy: holes are in lists by size class, and two levels of bit masks find a list that is
//! not empty.
//!
//! The idea is from Sebastian Aaltonen's OffsetAllocator (classes are small floating-point numbers) and TLSF
//! (two-level masks). This version has `u64` bytes, any alignment and 32 classes per octave. It also tries
//! one hole of the class below, which saves most of the memory that rounding up to the next class would
//! waste.

use super::Padded;
use super::tiling::{End, FreeIndex, NONE, Tile, Tiling};
use crate::memory::AllocError;

const MANTISSA_BITS: u32 = 5;
const PER_OCTAVE: usize = 1 << MANTISSA_BITS;
/// 60 octaves cover every `u64`; with 64, a power of two, an index needs a mask instead of a bounds check.
const OCTAVES: usize = 64;
const CLASSES: usize = OCTAVES * PER_OCTAVE;

/// A strategy in which allocation and free take constant time and, once its tables have grown, no heap
/// memory.
pub type Bins = Tiling<SizeBins>;

impl Bins {
    /// Creates bins without pages. `granule` is in bytes: every offset and size is a multiple of it.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64) -> Result<Self, AllocError> {
        let shift = granule.trailing_zeros();
        let heads = Box::new([NONE; CLASSES]);
        Self::with_index(granule, 0, SizeBins { shift, octaves: 0, classes: [0; OCTAVES], heads })
    }
}

/// The holes of [`Bins`].
#[derive(Debug)]
pub struct SizeBins {
    /// Sizes are counted in units of `1 << shift` bytes.
    shift: u32,
    /// Bit o is set if octave o has a class that is not empty.
    octaves: u64,
    /// Bit c of element o is set if class c of octave o is not empty.
    classes: [u32; OCTAVES],
    heads: Box<[u32; CLASSES]>,
}

/// Returns the class of `units`, rounded down, and whether `units` is larger than the smallest size of that
/// class. Below 2^MANTISSA_BITS classes are exact; above, a class is the leading one bit and the five bits
/// after it.
#[inline]
fn class_of(units: u64) -> (usize, bool) {
    // The bit set by `|` makes sizes below 2^MANTISSA_BITS, which are exact, follow the rule of the first
    // octave.
    let shift = 63 - (units | PER_OCTAVE as u64).leading_zeros() - MANTISSA_BITS;
    let class = ((shift as usize) << MANTISSA_BITS) + (units >> shift) as usize;
    (class % CLASSES, units & ((1 << shift) - 1) != 0)
}

impl SizeBins {
    #[inline]
    fn class_of_tile(&self, tiles: &[Tile], slot: u32) -> usize {
        class_of(tiles[slot as usize].size >> self.shift).0
    }

    /// Returns the first class at or above `class` that is not empty.
    #[inline]
    fn first_from(&self, class: usize) -> Option<usize> {
        let (octave, bit) = (class / PER_OCTAVE % OCTAVES, class % PER_OCTAVE);
        let here = self.classes[octave] & (u32::MAX << bit);
        let above = self.octaves & (u64::MAX << octave << 1);
        let next = above.trailing_zeros() as usize % OCTAVES;
        let (octave, classes) = if here != 0 { (octave, here) } else { (next, self.classes[next]) };
        let found = octave * PER_OCTAVE + classes.trailing_zeros() as usize;
        (here != 0 || above != 0).then_some(found % CLASSES)
    }
}

// Which lists are empty is unpredictable, so a branch on it would be mispredicted half the time. The code
// therefore writes all fields, even if nothing changes.
impl FreeIndex for SizeBins {
    #[inline]
    fn insert(&mut self, tiles: &mut [Tile], slot: u32) {
        let class = self.class_of_tile(tiles, slot);
        let head = std::mem::replace(&mut self.heads[class], slot);
        tiles[head as usize].links[0] = slot;
        tiles[slot as usize].links = [NONE, head];
        self.classes[class / PER_OCTAVE] |= 1 << (class % PER_OCTAVE);
        self.octaves |= 1 << (class / PER_OCTAVE);
    }

    #[inline]
    fn remove(&mut self, tiles: &mut [Tile], slot: u32) {
        let [before, after] = tiles[slot as usize].links;
        tiles[after as usize].links[0] = before;
        tiles[before as usize].links[1] = after;
        let class = self.class_of_tile(tiles, slot);
        let head = &mut self.heads[class];
        *head = if before == NONE { after } else { *head };
        let octave = class / PER_OCTAVE;
        let classes = &mut self.classes[octave];
        *classes &= !(u32::from(*head == NONE) << (class % PER_OCTAVE));
        self.octaves &= !(u64::from(*classes == 0) << octave);
    }

    #[inline]
    fn find(&mut self, tiles: &[Tile], want: Padded, _capacity: u64) -> Option<(u32, End)> {
        let units = want.size >> self.shift;
        let (class, _) = class_of(units);
        let head = self.heads[class];
        if tiles[head as usize].fit(want, End::Low).is_some() {
            return Some((head, End::Low));
        }
        let slack = (want.align >> self.shift) - 1;
        if slack == 0 {
            return Some((self.heads[self.first_from(class + 1)?], End::Low));
        }
        // A hole that holds the size plus the worst misalignment always fits.
        let (sure, inexact) = class_of(units.saturating_add(slack));
        if let Some(found) = self.first_from(sure + usize::from(inexact)) {
            return Some((self.heads[found], End::Low));
        }
        // In the classes below that, only the head of each list is tried: the last hole inserted. A fresh
        // page is such a head.
        let mut next = self.first_from(class + 1);
        while let Some(found) = next {
            let head = self.heads[found];
            if tiles[head as usize].fit(want, End::Low).is_some() {
                return Some((head, End::Low));
            }
            next = self.first_from(found + 1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Strategy;

    #[test]
    fn classes_are_monotone_and_within_a_thirty_second() {
        let mut last = (0, 0);
        for units in (0..5000).chain((13..64).flat_map(|e| (0..64).map(move |m| (1 << e) + (m << (e - 6))))) {
            let (class, inexact) = class_of(units);
            assert!(class < 60 * PER_OCTAVE, "{units} leaves its octaves: {class}");
            assert!(units <= last.0 || class >= last.1, "{units} falls to {class}");
            if inexact {
                let (below, _) = class_of(units - units / 32);
                assert!(below < class || class_of(units - 1).0 == class, "{units}");
            }
            last = (units, class);
        }
        assert_eq!(class_of(u64::MAX).0, 60 * PER_OCTAVE - 1);
    }

    #[test]
    fn a_hole_of_the_same_class_is_found_although_classes_are_ranges() {
        let mut bins = Bins::new(1).expect("power of two");
        bins.add_page(0, 1030, 0).expect("fresh page");
        let block = bins.alloc(1030, 1).expect("exactly the page");
        assert_eq!((block.span.size, bins.free_bytes()), (1030, 0));
    }

    #[test]
    fn alignment_larger_than_the_granule() {
        let mut bins = Bins::new(256).expect("power of two");
        bins.add_page(0, 1 << 20, 0).expect("fresh page");
        bins.alloc(256, 1).expect("room");
        let aligned = bins.alloc(1000, 65_536).expect("room");
        assert_eq!(aligned.span, crate::memory::Span { page: 0, offset: 65_536, size: 1024 });
        let front = bins.alloc(65_536 - 256, 1).expect("the hole in front is usable");
        assert_eq!(front.span.offset, 256);
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        let mut bins = Bins::new(1).expect("power of two");
        bins.add_page(0, u64::MAX, 0).expect("fresh page");
        assert!(matches!(bins.add_page(1, 1, 0), Err(AllocError::BadPage { .. })), "totals would overflow");
        assert!(matches!(bins.alloc(u64::MAX, 1 << 63), Ok(a) if a.span.offset == 0));
        assert!(matches!(bins.alloc(u64::MAX, 1 << 63), Err(AllocError::NoSpace { .. })));
    }
}
