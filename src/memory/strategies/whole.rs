//! One block per page. With [`Growth::Exact`](super::Growth::Exact) every tensor has its own buffer.

use std::collections::{BTreeMap, BTreeSet};

use super::handle::{Handle, Slots};
use super::{Allocation, Span, Strategy, check_granule, no_space, pad};
use crate::memory::AllocError;

/// Allocates the whole of the smallest free page that is large enough.
#[derive(Debug)]
pub struct Whole {
    granule: u64,
    /// Bytes of each page.
    pages: BTreeMap<u32, u64>,
    /// Bytes and number of each free page.
    free: BTreeSet<(u64, u32)>,
    blocks: Slots<Span>,
    capacity: u64,
    free_bytes: u64,
}

impl Whole {
    /// Creates the strategy without pages. `granule` is in bytes: every page is a multiple of it.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64) -> Result<Self, AllocError> {
        Ok(Self {
            granule: check_granule(granule)?,
            pages: BTreeMap::new(),
            free: BTreeSet::new(),
            blocks: Slots::new(),
            capacity: 0,
            free_bytes: 0,
        })
    }
}

impl Strategy for Whole {
    fn add_page(&mut self, page: u32, bytes: u64, _request: u64) -> Result<(), AllocError> {
        if self.pages.contains_key(&page) {
            return Err(AllocError::PageExists { page });
        }
        let size = bytes / self.granule * self.granule;
        let capacity = self.capacity.checked_add(size).filter(|_| size > 0);
        self.capacity = capacity.ok_or(AllocError::BadPage { bytes, granule: self.granule })?;
        self.free_bytes += size;
        self.pages.insert(page, size);
        self.free.insert((size, page));
        Ok(())
    }

    fn remove_page(&mut self, page: u32) -> Result<(), AllocError> {
        let size = *self.pages.get(&page).ok_or(AllocError::UnknownPage { page })?;
        if !self.free.remove(&(size, page)) {
            return Err(AllocError::PageInUse { page });
        }
        self.pages.remove(&page);
        self.capacity -= size;
        self.free_bytes -= size;
        Ok(())
    }

    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError> {
        let want = pad(self, size, align)?;
        let Some(&(size, page)) = self.free.range((want.size, 0)..).next() else {
            return Err(no_space(self, want.size, want.align));
        };
        self.free.remove(&(size, page));
        self.free_bytes -= size;
        let span = Span { page, offset: 0, size };
        Ok(Allocation { span, handle: self.blocks.insert(span) })
    }

    fn free(&mut self, handle: Handle) -> Result<Span, AllocError> {
        let span = self.blocks.remove(handle)?;
        self.free.insert((span.size, span.page));
        self.free_bytes += span.size;
        Ok(span)
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
        let mut spans: Vec<Span> =
            self.free.iter().map(|&(size, page)| Span { page, offset: 0, size }).collect();
        spans.sort_unstable();
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_page_that_is_large_enough_is_taken() {
        let mut whole = Whole::new(1).expect("power of two");
        for (page, bytes) in [(0, 100), (1, 40), (2, 60), (3, 40)] {
            whole.add_page(page, bytes, bytes).expect("fresh page");
        }
        let pages: Vec<_> = [30, 30, 30, 30].map(|n| whole.alloc(n, 1).expect("room").span.page).to_vec();
        assert_eq!(pages, [1, 3, 2, 0]);
        assert!(matches!(whole.alloc(1, 1), Err(AllocError::NoSpace { .. })));
        assert_eq!((whole.free_bytes(), whole.live()), (0, 4));
    }
}
