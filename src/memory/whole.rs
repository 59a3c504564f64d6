//! One block per page: with [`Growth::Exact`](super::Growth::Exact) a buffer of its own for every tensor.

use std::collections::BTreeMap;

use super::AllocError;
use super::handle::{Handle, Slots};
use super::strategy::{Allocation, Span, Strategy, check_granule, no_space, pad};

/// Hands out the smallest free page that is large enough, all of it.
#[derive(Debug)]
pub struct Whole {
    granule: u64,
    /// Size and block of each page.
    pages: BTreeMap<u32, (u64, Option<Handle>)>,
    blocks: Slots<Span>,
}

impl Whole {
    /// No pages yet. `granule` in bytes: every page is a multiple of it.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64) -> Result<Self, AllocError> {
        Ok(Self { granule: check_granule(granule)?, pages: BTreeMap::new(), blocks: Slots::new() })
    }
}

impl Strategy for Whole {
    fn add_page(&mut self, page: u32, bytes: u64, _request: u64) -> Result<(), AllocError> {
        if self.pages.contains_key(&page) {
            return Err(AllocError::PageExists { page });
        }
        let size = bytes / self.granule * self.granule;
        if size == 0 || self.capacity().checked_add(size).is_none() {
            return Err(AllocError::BadPage { bytes, granule: self.granule });
        }
        self.pages.insert(page, (size, None));
        Ok(())
    }

    fn remove_page(&mut self, page: u32) -> Result<(), AllocError> {
        match self.pages.get(&page) {
            None => Err(AllocError::UnknownPage { page }),
            Some((_, Some(_))) => Err(AllocError::PageInUse { page }),
            Some((_, None)) => {
                self.pages.remove(&page);
                Ok(())
            }
        }
    }

    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError> {
        let want = pad(self, size, align)?;
        let free = self.pages.iter_mut().filter(|(_, (bytes, block))| block.is_none() && *bytes >= want.size);
        let Some((&page, (size, block))) = free.min_by_key(|(number, (bytes, _))| (*bytes, **number)) else {
            return Err(no_space(self, want.size, want.align));
        };
        let span = Span { page, offset: 0, size: *size };
        let handle = self.blocks.insert(span);
        *block = Some(handle);
        Ok(Allocation { span, handle })
    }

    fn free(&mut self, handle: Handle) -> Result<Span, AllocError> {
        let span = self.blocks.remove(handle)?;
        if let Some((_, block)) = self.pages.get_mut(&span.page) {
            *block = None;
        }
        Ok(span)
    }

    fn granule(&self) -> u64 {
        self.granule
    }

    fn capacity(&self) -> u64 {
        self.pages.values().map(|(size, _)| size).sum()
    }

    fn free_bytes(&self) -> u64 {
        self.free_spans().iter().map(|span| span.size).sum()
    }

    fn live(&self) -> usize {
        self.blocks.len()
    }

    fn free_spans(&self) -> Vec<Span> {
        let free = self.pages.iter().filter(|(_, (_, block))| block.is_none());
        free.map(|(&page, &(size, _))| Span { page, offset: 0, size }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_page_that_is_large_enough() {
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
