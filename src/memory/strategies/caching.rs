//! The rules of PyTorch's caching allocator (`c10/cuda/CUDACachingAllocator.cpp`), for one stream.
//!
//! Sizes are multiples of 512 bytes. Blocks up to 1 MiB and larger blocks are in separate segments, and both
//! use best fit. A large block keeps a remainder of up to 1 MiB instead of splitting it off. Segment sizes
//! are [`Growth::Segments`](super::Growth::Segments); [`PoolOptions::pytorch`](super::PoolOptions::pytorch)
//! combines the two.

use super::handle::Handle;
use super::{Allocation, Span, Strategy, check_granule, pad};
use super::{Fit, FreeList};
use crate::memory::AllocError;
use crate::memory::growth::SMALL_BLOCK;

const GRANULE: u64 = 512;

/// Two best-fit lists: small blocks in small segments, large blocks in large ones.
#[derive(Debug)]
pub struct Caching {
    small: FreeList,
    large: FreeList,
}

impl Caching {
    /// Creates an allocator without segments. Offsets and sizes are multiples of `granule` bytes, and of 512.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64) -> Result<Self, AllocError> {
        let granule = check_granule(granule)?.max(GRANULE);
        Ok(Self {
            small: FreeList::new(granule, Fit::Best)?,
            large: FreeList::with_min_split(granule, Fit::Best, SMALL_BLOCK + 1)?,
        })
    }

    fn list(&mut self, bytes: u64) -> &mut FreeList {
        if bytes <= SMALL_BLOCK { &mut self.small } else { &mut self.large }
    }
}

impl Strategy for Caching {
    fn add_page(&mut self, page: u32, bytes: u64, request: u64) -> Result<(), AllocError> {
        if self.small.has_page(page) || self.large.has_page(page) {
            return Err(AllocError::PageExists { page });
        }
        if self.capacity().checked_add(bytes).is_none() {
            return Err(AllocError::BadPage { bytes, granule: self.granule() });
        }
        self.list(request).add_page(page, bytes, request)
    }

    fn remove_page(&mut self, page: u32) -> Result<(), AllocError> {
        if self.small.has_page(page) { self.small.remove_page(page) } else { self.large.remove_page(page) }
    }

    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError> {
        let size = pad(self, size, align)?.size;
        self.list(size).alloc(size, align)
    }

    fn free(&mut self, handle: Handle) -> Result<Span, AllocError> {
        match self.small.free(handle) {
            Err(AllocError::ForeignHandle { .. }) => self.large.free(handle),
            done => done,
        }
    }

    fn granule(&self) -> u64 {
        self.small.granule()
    }

    fn capacity(&self) -> u64 {
        self.small.capacity() + self.large.capacity()
    }

    fn free_bytes(&self) -> u64 {
        self.small.free_bytes() + self.large.free_bytes()
    }

    fn live(&self) -> usize {
        self.small.live() + self.large.live()
    }

    fn free_spans(&self) -> Vec<Span> {
        let mut spans = self.small.free_spans();
        spans.extend(self.large.free_spans());
        spans.sort_unstable();
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Offsets, Pool, PoolOptions, Request};

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn segments_and_splits_follow_pytorchs_rules() {
        let mut pool = Pool::new(PoolOptions::pytorch(), Offsets).expect("valid options");
        let mut take = |bytes: u64| {
            let block = pool.alloc(Request::new(bytes, "x", "activation")).expect("no cap");
            (block.page, block.offset, block.size, pool.stats().reserved.current / MIB)
        };
        assert_eq!(take(1), (0, 0, 512, 2), "a small segment");
        assert_eq!(take(MIB), (0, 512, MIB, 2), "1 MiB is small");
        assert_eq!(take(MIB), (1, 0, MIB, 4), "another small segment, not a large one");
        assert_eq!(take(MIB + 1), (2, 0, MIB + 512, 24), "a large segment");
        assert_eq!(take(9 * MIB), (2, MIB + 512, 9 * MIB, 24), "split off the large segment");
        let rest = 10 * MIB - 512;
        assert_eq!(
            take(rest - MIB),
            (2, 10 * MIB + 512, rest, 24),
            "a remainder of 1 MiB stays with its block"
        );
        assert_eq!(take(11 * MIB), (3, 0, 12 * MIB, 36), "in a fresh segment too");
        assert_eq!(take(11 * MIB - 512), (4, 0, 11 * MIB - 512, 48), "a larger one is split off");
        assert_eq!(take(500 * KIB), (0, MIB + 512, 500 * KIB, 48), "best fit among the small");
    }

    #[test]
    fn handles_of_either_list_are_freed_once_and_foreign_ones_refused() {
        let mut caching = Caching::new(256).expect("power of two");
        caching.add_page(0, 2 * MIB, 1).expect("fresh page");
        caching.add_page(1, 20 * MIB, 2 * MIB).expect("fresh page");
        assert!(matches!(caching.add_page(1, MIB, 1), Err(AllocError::PageExists { page: 1 })));
        let blocks = [1, 2 * MIB].map(|n| caching.alloc(n, 1).expect("room"));
        assert_eq!(blocks.map(|b| b.span.page), [0, 1]);
        for block in blocks {
            caching.free(block.handle).expect("live");
            assert!(matches!(caching.free(block.handle), Err(AllocError::NotAllocated { .. })));
        }
        let mut other = Caching::new(256).expect("power of two");
        assert!(matches!(other.free(blocks[0].handle), Err(AllocError::ForeignHandle { .. })));
        assert!(matches!(caching.remove_page(2), Err(AllocError::UnknownPage { page: 2 })));
        caching.remove_page(1).expect("idle");
        assert_eq!(caching.capacity(), 2 * MIB);
    }
}
