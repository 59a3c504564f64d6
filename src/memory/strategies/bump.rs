//! Bump arena: a stack of blocks. Allocation moves a cursor; a free or a reset reclaims memory from the top.

use std::collections::BTreeMap;

use super::handle::{Handle, Owner};
use super::{Allocation, Span, Strategy, align_up, check_granule, no_space, pad};
use crate::memory::AllocError;

/// A stack of blocks over one or more pages. A block freed below the top is reclaimed when it becomes the
/// top.
///
/// ```
/// use wgrad::memory::{Bump, Strategy};
/// let mut arena = Bump::new(256)?;
/// arena.add_page(0, 4096, 0)?;
/// let weights = arena.alloc(1000, 1)?;
/// let step = arena.mark();
/// arena.alloc(2000, 1)?;
/// arena.reset(step)?;
/// assert_eq!((weights.span.size, arena.free_bytes()), (1024, 4096 - 1024));
/// # Ok::<(), wgrad::memory::AllocError>(())
/// ```
#[derive(Debug)]
pub struct Bump {
    owner: Owner,
    granule: u64,
    pages: BTreeMap<u32, Page>,
    stack: Vec<Entry>,
    /// Serial number of the next block; never reused, so that marks and handles cannot be confused.
    serial: u64,
    live: usize,
}

#[derive(Debug)]
struct Page {
    size: u64,
    cursor: u64,
    /// Stack entries in this page, dead ones included.
    entries: usize,
}

#[derive(Debug)]
struct Entry {
    span: Span,
    /// Cursor of the page before this block, alignment padding included.
    bottom: u64,
    serial: u64,
    live: bool,
}

/// A height of the stack, to which [`Bump::reset`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    owner: Owner,
    serial: u64,
}

impl Bump {
    /// Creates an arena without pages. `granule` is in bytes: every offset and size is a multiple of it.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` is not a power of two.
    pub fn new(granule: u64) -> Result<Self, AllocError> {
        let granule = check_granule(granule)?;
        Ok(Self {
            owner: Owner::new(),
            granule,
            pages: BTreeMap::new(),
            stack: Vec::new(),
            serial: 0,
            live: 0,
        })
    }

    /// Returns the current height of the stack.
    pub fn mark(&self) -> Mark {
        Mark { owner: self.owner, serial: self.serial }
    }

    /// Frees every block allocated since `mark` and invalidates their handles.
    ///
    /// # Errors
    /// [`AllocError::ForeignHandle`] if the mark was made by another arena.
    pub fn reset(&mut self, mark: Mark) -> Result<(), AllocError> {
        if mark.owner != self.owner {
            return Err(AllocError::ForeignHandle { slot: mark.serial as u32 });
        }
        while self.stack.last().is_some_and(|top| top.serial >= mark.serial) {
            self.pop();
        }
        self.drop_dead_top();
        Ok(())
    }

    fn pop(&mut self) {
        if let Some(top) = self.stack.pop() {
            self.live -= usize::from(top.live);
            if let Some(page) = self.pages.get_mut(&top.span.page) {
                page.cursor = top.bottom;
                page.entries -= 1;
            }
        }
    }

    fn drop_dead_top(&mut self) {
        while self.stack.last().is_some_and(|top| !top.live) {
            self.pop();
        }
    }
}

impl Strategy for Bump {
    fn add_page(&mut self, page: u32, bytes: u64, _request: u64) -> Result<(), AllocError> {
        if self.pages.contains_key(&page) {
            return Err(AllocError::PageExists { page });
        }
        let size = bytes / self.granule * self.granule;
        if size == 0 || self.capacity().checked_add(size).is_none() {
            return Err(AllocError::BadPage { bytes, granule: self.granule });
        }
        self.pages.insert(page, Page { size, cursor: 0, entries: 0 });
        Ok(())
    }

    fn remove_page(&mut self, page: u32) -> Result<(), AllocError> {
        match self.pages.get(&page) {
            None => Err(AllocError::UnknownPage { page }),
            Some(found) if found.entries > 0 => Err(AllocError::PageInUse { page }),
            Some(_) => {
                self.pages.remove(&page);
                Ok(())
            }
        }
    }

    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError> {
        let want = pad(self, size, align)?;
        let placed = self.pages.iter_mut().find_map(|(&number, page)| {
            let offset = align_up(page.cursor, want.align)?;
            let end = offset.checked_add(want.size).filter(|&end| end <= page.size)?;
            let bottom = std::mem::replace(&mut page.cursor, end);
            page.entries += 1;
            Some((Span { page: number, offset, size: want.size }, bottom))
        });
        let Some((span, bottom)) = placed else {
            return Err(no_space(self, want.size, want.align));
        };
        let handle =
            Handle { owner: self.owner, slot: self.stack.len() as u32, generation: self.serial as u32 };
        self.stack.push(Entry { span, bottom, serial: self.serial, live: true });
        self.serial += 1;
        self.live += 1;
        Ok(Allocation { span, handle })
    }

    fn free(&mut self, handle: Handle) -> Result<Span, AllocError> {
        let slot = handle.slot;
        if handle.owner != self.owner {
            return Err(AllocError::ForeignHandle { slot });
        }
        let found = self.stack.get_mut(slot as usize);
        let entry = found
            .filter(|entry| entry.live && entry.serial as u32 == handle.generation)
            .ok_or(AllocError::NotAllocated { slot })?;
        entry.live = false;
        let span = entry.span;
        self.live -= 1;
        self.drop_dead_top();
        Ok(span)
    }

    fn granule(&self) -> u64 {
        self.granule
    }

    fn capacity(&self) -> u64 {
        self.pages.values().map(|page| page.size).sum()
    }

    fn free_bytes(&self) -> u64 {
        self.pages.values().map(|page| page.size - page.cursor).sum()
    }

    fn live(&self) -> usize {
        self.live
    }

    fn free_spans(&self) -> Vec<Span> {
        let above = |(&number, page): (&u32, &Page)| Span {
            page: number,
            offset: page.cursor,
            size: page.size - page.cursor,
        };
        self.pages.iter().map(above).filter(|span| span.size > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(bytes: u64) -> Bump {
        let mut arena = Bump::new(256).expect("256 is a power of two");
        arena.add_page(0, bytes, 0).expect("a fresh page");
        arena
    }

    #[test]
    fn reset_returns_to_the_mark_and_invalidates_dropped_handles() {
        let mut arena = arena(4096);
        let kept = arena.alloc(300, 1).expect("room");
        let mark = arena.mark();
        let dropped = arena.alloc(1, 1024).expect("room");
        assert_eq!(dropped.span, Span { page: 0, offset: 1024, size: 256 });
        arena.reset(mark).expect("own mark");
        assert_eq!(arena.free_bytes(), 4096 - 512, "the padding comes back too");
        let again = arena.alloc(1, 1).expect("room");
        assert_eq!(again.handle.slot, dropped.handle.slot);
        assert!(matches!(arena.free(dropped.handle), Err(AllocError::NotAllocated { .. })));
        arena.free(kept.handle).expect("live");
        arena.free(again.handle).expect("live");
        assert_eq!((arena.live(), arena.free_bytes()), (0, 4096));
    }

    #[test]
    fn mark_stays_valid_when_the_stack_went_below_it() {
        let mut arena = arena(4096);
        let first = arena.alloc(256, 1).expect("room");
        let mark = arena.mark();
        arena.free(first.handle).expect("live");
        arena.alloc(256, 1).expect("room");
        arena.reset(mark).expect("own mark");
        assert_eq!(
            (arena.live(), arena.free_bytes()),
            (0, 4096),
            "all that is younger than the mark is gone"
        );
        assert!(matches!(arena.reset(self::arena(256).mark()), Err(AllocError::ForeignHandle { .. })));
    }

    #[test]
    fn block_below_the_top_is_reclaimed_with_the_top() {
        let mut arena = arena(1024);
        let blocks: Vec<_> = (0..4).map(|_| arena.alloc(256, 1).expect("room").handle).collect();
        arena.free(blocks[2]).expect("live");
        assert_eq!(arena.free_bytes(), 0);
        assert!(matches!(arena.remove_page(0), Err(AllocError::PageInUse { page: 0 })));
        arena.free(blocks[3]).expect("live");
        assert_eq!(arena.free_bytes(), 512);
    }
}
