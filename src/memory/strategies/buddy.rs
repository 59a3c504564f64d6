//! Buddy system: block sizes are powers of two times the granule, at multiples of their size; two free halves
//! of one block merge.

use std::collections::{BTreeMap, BTreeSet};

use super::handle::{Handle, Slots};
use super::{Allocation, Span, Strategy, check_granule, no_space, pad};
use crate::memory::AllocError;

/// Allocates powers of two times the granule, so up to half of a block may be padding. A page whose size is
/// not a power of two is cut into powers of two, largest first.
#[derive(Debug)]
pub struct Buddy {
    granule: u64,
    pages: BTreeMap<u32, Page>,
    /// Free blocks of `granule << order` bytes by (page, offset).
    free: Vec<BTreeSet<(u32, u64)>>,
    blocks: Slots<Block>,
    capacity: u64,
    free_bytes: u64,
}

#[derive(Debug)]
struct Page {
    size: u64,
    blocks: usize,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    page: u32,
    offset: u64,
    order: usize,
}

impl Buddy {
    /// Creates a buddy system without pages. `granule` is the smallest block in bytes.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64) -> Result<Self, AllocError> {
        let granule = check_granule(granule)?;
        let orders = 64 - granule.trailing_zeros() as usize;
        Ok(Self {
            granule,
            pages: BTreeMap::new(),
            free: vec![BTreeSet::new(); orders],
            blocks: Slots::new(),
            capacity: 0,
            free_bytes: 0,
        })
    }

    fn bytes(&self, order: usize) -> u64 {
        self.granule << order
    }
}

impl Strategy for Buddy {
    fn add_page(&mut self, page: u32, bytes: u64, _request: u64) -> Result<(), AllocError> {
        if self.pages.contains_key(&page) {
            return Err(AllocError::PageExists { page });
        }
        let size = bytes / self.granule * self.granule;
        let capacity = self.capacity.checked_add(size).filter(|_| size > 0);
        self.capacity = capacity.ok_or(AllocError::BadPage { bytes, granule: self.granule })?;
        self.free_bytes += size;
        let mut offset = 0;
        for order in (0..self.free.len()).rev() {
            if ((size / self.granule) >> order) & 1 == 1 {
                self.free[order].insert((page, offset));
                offset += self.bytes(order);
            }
        }
        self.pages.insert(page, Page { size, blocks: 0 });
        Ok(())
    }

    fn remove_page(&mut self, page: u32) -> Result<(), AllocError> {
        match self.pages.get(&page) {
            None => return Err(AllocError::UnknownPage { page }),
            Some(found) if found.blocks > 0 => return Err(AllocError::PageInUse { page }),
            Some(found) => {
                self.capacity -= found.size;
                self.free_bytes -= found.size;
            }
        }
        self.pages.remove(&page);
        self.free.iter_mut().for_each(|blocks| blocks.retain(|&(number, _)| number != page));
        Ok(())
    }

    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError> {
        let want = pad(self, size, align)?;
        let found = self.least_page(want.size, want.align).and_then(|bytes| {
            let order = (bytes / self.granule).trailing_zeros() as usize;
            let larger = (order..self.free.len()).find(|&o| !self.free[o].is_empty())?;
            Some((order, larger, self.free[larger].pop_first()?))
        });
        let Some((order, larger, (page, offset))) = found else {
            return Err(no_space(self, want.size, want.align));
        };
        for half in (order..larger).rev() {
            let right = offset + self.bytes(half);
            self.free[half].insert((page, right));
        }
        if let Some(page) = self.pages.get_mut(&page) {
            page.blocks += 1;
        }
        self.free_bytes -= self.bytes(order);
        let handle = self.blocks.insert(Block { page, offset, order });
        Ok(Allocation { span: Span { page, offset, size: self.bytes(order) }, handle })
    }

    fn free(&mut self, handle: Handle) -> Result<Span, AllocError> {
        let Block { page, offset, order } = self.blocks.remove(handle)?;
        let span = Span { page, offset, size: self.bytes(order) };
        let (mut offset, mut order) = (offset, order);
        // A root block has no buddy of its order, so merging stops there.
        let mut bytes = span.size;
        while self.free[order].remove(&(page, offset ^ bytes)) {
            offset &= !bytes;
            bytes *= 2;
            order += 1;
        }
        self.free[order].insert((page, offset));
        self.free_bytes += span.size;
        if let Some(page) = self.pages.get_mut(&page) {
            page.blocks -= 1;
        }
        Ok(span)
    }

    fn least_page(&self, size: u64, align: u64) -> Option<u64> {
        Some(size.max(self.granule).checked_next_power_of_two()?.max(align))
    }

    fn granule(&self) -> u64 {
        self.granule
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn live(&self) -> usize {
        self.blocks.len()
    }

    fn free_spans(&self) -> Vec<Span> {
        let blocks = self.free.iter().enumerate().flat_map(|(order, blocks)| {
            blocks.iter().map(move |&(page, offset)| Span { page, offset, size: self.bytes(order) })
        });
        let mut spans: Vec<Span> = blocks.collect();
        spans.sort_unstable();
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_merge_but_roots_do_not() {
        let mut buddy = Buddy::new(1).expect("power of two");
        buddy.add_page(0, 13, 0).expect("fresh page");
        let roots = [(0, 8), (8, 4), (12, 1)].map(|(offset, size)| Span { page: 0, offset, size });
        assert_eq!(buddy.free_spans(), roots);
        let blocks: Vec<_> = [1, 3, 2, 1].map(|n| buddy.alloc(n, 1).expect("room")).to_vec();
        let places: Vec<_> = blocks.iter().map(|b| (b.span.offset, b.span.size)).collect();
        assert_eq!(places, [(12, 1), (8, 4), (0, 2), (2, 1)]);
        for block in blocks {
            buddy.free(block.handle).expect("live");
        }
        assert_eq!(buddy.free_spans(), roots);
        assert!(
            matches!(buddy.alloc(9, 1), Err(AllocError::NoSpace { .. })),
            "13 are free, but not 16 in one block"
        );
    }

    #[test]
    fn blocks_are_at_multiples_of_their_size_and_nothing_overflows() {
        let mut buddy = Buddy::new(256).expect("power of two");
        buddy.add_page(0, u64::MAX, 0).expect("fresh page");
        assert_eq!(buddy.capacity(), u64::MAX - 255);
        for (size, align) in [(1, 1), (300, 65_536), (5000, 1), (1 << 62, 1)] {
            let span = buddy.alloc(size, align).expect("room").span;
            assert_eq!(span.offset % span.size, 0, "{span:?}");
            assert_eq!(span.offset % align, 0, "{span:?}");
        }
        assert!(matches!(buddy.alloc(u64::MAX, 1), Err(AllocError::NoSpace { .. })));
        assert!(matches!(buddy.alloc((1 << 63) + 1, 1), Err(AllocError::NoSpace { .. })));
    }
}
