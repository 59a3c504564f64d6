//! Size classes: small blocks are slots of slabs, each slab cut into equal slots; slabs and large blocks come
//! from a best-fit free list.

use std::collections::{BTreeMap, BTreeSet};

use super::handle::{Handle, Slots};
use super::{Allocation, Span, Strategy, pad};
use super::{Fit, FreeList};
use crate::memory::AllocError;

/// Maximum slots per slab: one bit of a `u64` each.
const SLOTS: u64 = 64;
/// Maximum bytes per slab.
const SLAB: u64 = 256 << 10;
/// Maximum bytes of a small block. Larger blocks, and blocks with an alignment above the granule, come from
/// the free list.
const SMALL: u64 = 32 << 10;
/// Four classes per octave: a slot is at most a quarter larger than its block.
const PER_OCTAVE: u64 = 4;

/// Slabs on top of a free list. A slab is returned to the list as soon as it is empty.
#[derive(Debug)]
pub struct SizeClasses {
    upstream: FreeList,
    slabs: BTreeMap<Place, Slab>,
    /// Slabs with a free slot: bytes of a slot, and location of the slab.
    open: BTreeSet<(u64, Place)>,
    blocks: Slots<(Place, u32)>,
    /// Bytes of free slots.
    spare: u64,
}

/// Page and offset of a slab.
type Place = (u32, u64);

#[derive(Debug)]
struct Slab {
    block: Handle,
    slot_bytes: u64,
    /// Bit i is set if slot i is free.
    free: u64,
    /// Value of `free` when all slots are free.
    all: u64,
}

impl SizeClasses {
    /// Creates size classes without pages. `granule` is in bytes: every offset and size is a multiple of it.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64) -> Result<Self, AllocError> {
        let upstream = FreeList::new(granule, Fit::Best)?;
        Ok(Self { upstream, slabs: BTreeMap::new(), open: BTreeSet::new(), blocks: Slots::new(), spare: 0 })
    }

    /// Returns the bytes of a slot for blocks of `size` bytes: `size` rounded up to a quarter of its octave.
    fn slot_bytes(&self, size: u64) -> u64 {
        let step = (size.next_power_of_two() / 2 / PER_OCTAVE).max(self.granule());
        size.next_multiple_of(step)
    }

    /// Returns a slab with a free slot of `slot_bytes`, which is created if necessary.
    fn open_slab(&mut self, slot_bytes: u64) -> Result<Place, AllocError> {
        if let Some(&(_, place)) =
            self.open.range((slot_bytes, (0, 0))..=(slot_bytes, (u32::MAX, u64::MAX))).next()
        {
            return Ok(place);
        }
        let slots = (SLAB / slot_bytes).clamp(1, SLOTS);
        let Allocation { span, handle } = self.upstream.alloc(slots * slot_bytes, 1)?;
        let all = u64::MAX >> (SLOTS - slots);
        let place = (span.page, span.offset);
        self.slabs.insert(place, Slab { block: handle, slot_bytes, free: all, all });
        self.open.insert((slot_bytes, place));
        self.spare += slots * slot_bytes;
        Ok(place)
    }
}

impl Strategy for SizeClasses {
    fn add_page(&mut self, page: u32, bytes: u64, request: u64) -> Result<(), AllocError> {
        self.upstream.add_page(page, bytes, request)
    }

    fn remove_page(&mut self, page: u32) -> Result<(), AllocError> {
        self.upstream.remove_page(page)
    }

    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError> {
        let want = pad(self, size, align)?;
        if want.size > SMALL || want.align > self.granule() {
            return self.upstream.alloc(size, align);
        }
        let slot_bytes = self.slot_bytes(want.size);
        let Ok(place) = self.open_slab(slot_bytes) else {
            return self.upstream.alloc(size, align);
        };
        let slot = self.slabs.get_mut(&place).map_or(0, |slab| {
            let slot = slab.free.trailing_zeros();
            slab.free &= slab.free - 1;
            if slab.free == 0 {
                self.open.remove(&(slot_bytes, place));
            }
            slot
        });
        self.spare -= slot_bytes;
        let (page, base) = place;
        let span = Span { page, offset: base + u64::from(slot) * slot_bytes, size: slot_bytes };
        Ok(Allocation { span, handle: self.blocks.insert((place, slot)) })
    }

    fn free(&mut self, handle: Handle) -> Result<Span, AllocError> {
        let (place, slot) = match self.blocks.remove(handle) {
            Err(AllocError::ForeignHandle { .. }) => return self.upstream.free(handle),
            found => found?,
        };
        let slab = self.slabs.get_mut(&place).ok_or(AllocError::NotAllocated { slot: handle.slot })?;
        let (bytes, block) = (slab.slot_bytes, slab.block);
        slab.free |= 1 << slot;
        self.spare += bytes;
        self.open.insert((bytes, place));
        if slab.free == slab.all {
            self.spare -= u64::from(slab.all.count_ones()) * bytes;
            self.open.remove(&(bytes, place));
            self.slabs.remove(&place);
            self.upstream.free(block)?;
        }
        Ok(Span { page: place.0, offset: place.1 + u64::from(slot) * bytes, size: bytes })
    }

    fn granule(&self) -> u64 {
        self.upstream.granule()
    }

    fn capacity(&self) -> u64 {
        self.upstream.capacity()
    }

    fn free_bytes(&self) -> u64 {
        self.upstream.free_bytes() + self.spare
    }

    fn live(&self) -> usize {
        self.upstream.live() - self.slabs.len() + self.blocks.len()
    }

    fn free_spans(&self) -> Vec<Span> {
        let mut spans = self.upstream.free_spans();
        for (&(page, base), slab) in &self.slabs {
            let free = (0..SLOTS).filter(|slot| slab.free >> slot & 1 == 1);
            spans.extend(free.map(|slot| Span {
                page,
                offset: base + slot * slab.slot_bytes,
                size: slab.slot_bytes,
            }));
        }
        spans.sort_unstable();
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(bytes: u64) -> SizeClasses {
        let mut classes = SizeClasses::new(256).expect("power of two");
        classes.add_page(0, bytes, 0).expect("fresh page");
        classes
    }

    #[test]
    fn slots_are_at_most_a_quarter_larger() {
        let classes = classes(1 << 20);
        for units in 1..=SMALL / 256 {
            let (size, slot) = (units * 256, classes.slot_bytes(units * 256));
            assert!(slot >= size && slot * 4 <= size * 5 && slot % 256 == 0, "{size} gets {slot}");
        }
    }

    #[test]
    fn a_slab_is_shared_and_goes_back_when_empty() {
        let mut classes = classes(1 << 20);
        let blocks: Vec<_> = (0..65).map(|_| classes.alloc(1000, 1).expect("room")).collect();
        assert_eq!(classes.slabs.len(), 2, "64 slots each");
        assert_eq!((classes.live(), classes.free_bytes()), (65, (1 << 20) - 65 * 1024));
        for block in &blocks {
            classes.free(block.handle).expect("live");
            assert!(matches!(classes.free(block.handle), Err(AllocError::NotAllocated { .. })));
        }
        assert_eq!(classes.free_spans(), [Span { page: 0, offset: 0, size: 1 << 20 }]);
    }

    #[test]
    fn a_small_block_needs_no_slab_where_none_fits() {
        let mut classes = classes(4096);
        let block = classes.alloc(1000, 1).expect("from the free list");
        assert_eq!((classes.slabs.len(), block.span.size), (0, 1024));
        assert_eq!(classes.alloc(256, 2048).expect("aligned").span.offset, 2048);
    }
}
