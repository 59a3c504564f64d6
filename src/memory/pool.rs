//! A pool: a [`Strategy`] over pages that come from a [`Backing`], with growth, a cap, statistics and an
//! event log.
//!
//! The pool owns the pages that its backing creates, so the executor does not need a second table of buffers:
//! a [`Block`] names a page, and [`Pool::page`] returns the buffer of that page.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::strategies::{Allocation, Handle, Slots, Span, Strategy};
use super::{Action, AllocError, AllocEvent, Backing, Block, EventLog, LiveBlock, MemoryStats, OutOfMemory};
use super::{Dump, DumpBlock, DumpSegment, Label, PageInfo, PoolOptions, Request};
use crate::units::{Bytes, align_up};

#[derive(Debug)]
struct Page<P> {
    bytes: u64,
    blocks: usize,
    backing: P,
}

#[derive(Clone, Debug)]
struct Live {
    allocation: Allocation,
    requested: u64,
    align: u64,
    name: Arc<str>,
    class: Arc<str>,
}

/// Allocates blocks from pages that `B` creates, and owns these pages: [`page`](Self::page) returns the
/// buffer of a block.
///
/// ```
/// use wgrad::memory::{Offsets, Pool, PoolOptions, Request};
/// let mut pool = Pool::new(PoolOptions::default(), Offsets)?;
/// let block = pool.alloc(Request::new(1000, "fc1.weight", "parameter"))?;
/// assert_eq!((block.size, pool.stats().reserved.current), (1024, 4 << 20));
/// pool.free(block)?;
/// assert_eq!(pool.trim(), 4 << 20);
/// # Ok::<(), wgrad::memory::AllocError>(())
/// ```
#[derive(Debug)]
pub struct Pool<B: Backing> {
    options: PoolOptions,
    backing: B,
    strategy: Box<dyn Strategy + Send>,
    pages: BTreeMap<u32, Page<B::Page>>,
    /// Unused page numbers below the largest one. New pages reuse them, so that page numbers stay small.
    vacant: BTreeSet<u32>,
    live: Slots<Live>,
    deferred: Vec<Live>,
    labels: BTreeSet<Arc<str>>,
    stats: MemoryStats,
    /// Bytes of pages with at least one active block.
    busy: u64,
    log: EventLog,
}

impl<B: Backing> Pool<B> {
    /// Creates a pool and its preallocated pages.
    ///
    /// # Errors
    /// [`AllocError::BadOption`], [`AllocError::BadAlignment`]; [`AllocError::OutOfMemory`] if the
    /// preallocation fails.
    pub fn new(options: PoolOptions, backing: B) -> Result<Self, AllocError> {
        let strategy = options.strategy.build(options.granule)?;
        if options.max_page < options.granule {
            let why = "must hold at least one granule";
            return Err(AllocError::BadOption { option: "max_page", value: options.max_page, why });
        }
        let mut pool = Self {
            options,
            backing,
            strategy,
            pages: BTreeMap::new(),
            vacant: BTreeSet::new(),
            live: Slots::new(),
            deferred: Vec::new(),
            labels: BTreeSet::new(),
            stats: MemoryStats::default(),
            busy: 0,
            log: EventLog::new(options.events),
        };
        let mut left = align_up(options.prealloc, options.granule).unwrap_or(options.prealloc);
        while left > 0 {
            let bytes = left.min(pool.largest_page());
            pool.grow((bytes, bytes), "preallocation", "", false)?;
            left -= bytes;
        }
        Ok(pool)
    }

    /// Allocates a block. Creates a page if the block fits in no existing page.
    ///
    /// # Errors
    /// [`AllocError::TooLarge`], [`AllocError::OutOfMemory`], [`AllocError::BadAlignment`].
    pub fn alloc(&mut self, request: Request<'_>) -> Result<Block, AllocError> {
        let allocation = match self.strategy.alloc(request.bytes, request.align) {
            Err(AllocError::NoSpace { .. }) => self.alloc_in_new_page(request)?,
            other => other?,
        };
        Ok(self.hand_out(allocation, request))
    }

    /// As [`alloc`](Self::alloc), but returns `None` instead of creating a page.
    pub(super) fn alloc_in_place(&mut self, request: Request<'_>) -> Result<Option<Block>, AllocError> {
        match self.strategy.alloc(request.bytes, request.align) {
            Err(AllocError::NoSpace { .. }) => Ok(None),
            Err(other) => Err(other),
            Ok(allocation) => Ok(Some(self.hand_out(allocation, request))),
        }
    }

    fn hand_out(&mut self, allocation: Allocation, request: Request<'_>) -> Block {
        let (name, class) = (self.label(request.name), self.label(request.class));
        let live = Live { allocation, requested: request.bytes, align: request.align, name, class };
        self.note(Action::Alloc, &live);
        self.enter(&live);
        let id = self.live.insert(live);
        block(allocation, id)
    }

    /// Frees a block immediately. This is correct if work that uses the block is submitted before any work
    /// that reuses its memory.
    ///
    /// # Errors
    /// [`AllocError::NotAllocated`], [`AllocError::ForeignHandle`].
    pub fn free(&mut self, block: Block) -> Result<(), AllocError> {
        let live = self.live.remove(block.id)?;
        self.leave(&live);
        self.release(live)
    }

    /// Frees a block whose memory may still be in use by the device: it stays active until
    /// [`collect`](Self::collect).
    ///
    /// # Errors
    /// [`AllocError::NotAllocated`], [`AllocError::ForeignHandle`].
    pub fn free_later(&mut self, block: Block) -> Result<(), AllocError> {
        let live = self.live.remove(block.id)?;
        self.leave(&live);
        self.deferred.push(live);
        Ok(())
    }

    /// Makes the memory of all blocks passed to [`free_later`](Self::free_later) available.
    ///
    /// # Errors
    /// None if the strategy is correct; errors of the strategy are propagated.
    pub fn collect(&mut self) -> Result<(), AllocError> {
        std::mem::take(&mut self.deferred).into_iter().try_for_each(|live| self.release(live))
    }

    /// Ends a step: what follows is expected to repeat it. With [`Kind::Learned`](super::Kind::Learned) the step
    /// is planned; idle pages that the plan does not need are released, and a page of the plan's bytes is
    /// created. If the cap or the device refuses that page, the next step has no plan. Other strategies do
    /// nothing.
    ///
    /// # Errors
    /// None if the strategy is correct; errors of the strategy are propagated.
    pub fn end_step(&mut self) -> Result<(), AllocError> {
        let Some(bytes) = self.strategy.end_step() else { return Ok(()) };
        let unused = self.stats.reserved.current - self.stats.active.current;
        let is_tight = unused <= bytes.saturating_add(bytes / 64) && self.strategy.largest_free() >= bytes;
        if is_tight {
            return Ok(());
        }
        self.trim();
        if self.strategy.largest_free() >= bytes || bytes > self.largest_page() {
            return Ok(());
        }
        match self.grow((bytes, bytes), "plan of a step", "", false) {
            Err(AllocError::OutOfMemory(_)) => Ok(()),
            other => other,
        }
    }

    /// Releases every page without active blocks (PyTorch's `empty_cache`) and returns the bytes released.
    pub fn trim(&mut self) -> u64 {
        let idle: Vec<u32> =
            self.pages.iter().filter(|(_, page)| page.blocks == 0).map(|(&n, _)| n).collect();
        idle.into_iter().map(|page| self.drop_page(page)).sum()
    }

    /// Returns what the backing created for `page`: the buffer that holds its blocks.
    pub fn page(&self, page: u32) -> Option<&B::Page> {
        self.pages.get(&page).map(|page| &page.backing)
    }

    /// Iterates over the pages in order of their numbers.
    pub fn pages(&self) -> impl Iterator<Item = PageInfo> {
        self.pages.iter().map(|(&number, page)| PageInfo {
            page: number,
            bytes: page.bytes,
            blocks: page.blocks,
        })
    }

    /// Iterates over the live blocks with their labels.
    pub fn live(&self) -> impl Iterator<Item = LiveBlock> {
        self.live.iter().map(|(id, live)| LiveBlock {
            block: block(live.allocation, id),
            requested: live.requested,
            align: live.align,
            name: live.name.clone(),
            class: live.class.clone(),
        })
    }

    /// Returns the statistics.
    pub fn stats(&self) -> &MemoryStats {
        &self.stats
    }

    /// Resets the peaks of the statistics to the current values.
    pub fn reset_peaks(&mut self) {
        self.stats.reset_peaks();
    }

    /// Returns the event log.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// Returns the pages, the live blocks and the events in the log as a snapshot that PyTorch's memory
    /// viewer opens.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn dump(&self) -> Dump {
        let segment = |page: PageInfo| DumpSegment { page: page.page, size: page.bytes, live: Vec::new() };
        let mut segments: Vec<DumpSegment> = self.pages().map(segment).collect();
        for live in self.live() {
            let label = Label { file: live.class.to_string(), line: 0, name: live.name.to_string() };
            let Block { page, offset, size, .. } = live.block;
            let block = DumpBlock { offset, size, requested: live.requested, label };
            if let Some(segment) = segments.iter_mut().find(|segment| segment.page == page) {
                segment.live.push(block);
            }
        }
        let mut dump = Dump::new(segments);
        self.log.events().for_each(|event| dump.pool_event(event));
        dump
    }

    /// Returns the strategy, for reports about holes.
    pub fn strategy(&self) -> &dyn Strategy {
        self.strategy.as_ref()
    }

    /// Returns the options that the pool was created with.
    pub fn options(&self) -> &PoolOptions {
        &self.options
    }

    fn largest_page(&self) -> u64 {
        self.options.max_page / self.options.granule * self.options.granule
    }

    #[cold]
    fn alloc_in_new_page(&mut self, request: Request<'_>) -> Result<Allocation, AllocError> {
        let max_page = self.largest_page();
        let least = self.strategy.least_page(request.bytes, request.align).filter(|&bytes| bytes <= max_page);
        let Some(least) = least else {
            return Err(AllocError::TooLarge {
                name: request.name.into(),
                class: request.class.into(),
                asked: Bytes(request.bytes),
                max_page: Bytes(max_page),
            });
        };
        let wanted = self.options.growth.page_bytes(least, self.stats.reserved.current);
        let wanted = align_up(wanted, self.options.granule).unwrap_or(wanted).min(max_page);
        self.grow((wanted, least), request.name, request.class, true)?;
        self.strategy.alloc(request.bytes, request.align)
    }

    /// Adds a page of `wanted` bytes or, if the cap or the device refuses that, of `least` bytes. If
    /// `may_trim`, releases idle pages and tries once more before the request fails.
    fn grow(
        &mut self,
        (wanted, least): (u64, u64),
        name: &str,
        class: &str,
        mut may_trim: bool,
    ) -> Result<(), AllocError> {
        let mut refusal = None;
        loop {
            for bytes in [wanted, least].into_iter().take(if wanted == least { 1 } else { 2 }) {
                if self.options.cap.is_some_and(|cap| bytes > cap.saturating_sub(self.stats.reserved.current))
                {
                    continue;
                }
                match self.backing.create(bytes) {
                    Ok(backing) => return self.insert_page(bytes, least, backing),
                    Err(reason) => refusal = Some(reason),
                }
            }
            if !may_trim || self.trim() == 0 {
                return Err(self.out_of_memory(least, name, class, refusal));
            }
            self.stats.num_alloc_retries += 1;
            may_trim = false;
        }
    }

    fn insert_page(&mut self, bytes: u64, request: u64, backing: B::Page) -> Result<(), AllocError> {
        let number = self.vacant.first().copied().unwrap_or(self.pages.len() as u32);
        self.strategy.add_page(number, bytes, request)?;
        self.vacant.remove(&number);
        self.pages.insert(number, Page { bytes, blocks: 0, backing });
        self.stats.reserved.add(bytes);
        self.stats.segments.add(1);
        self.note_page(Action::PageAlloc, number, bytes);
        Ok(())
    }

    /// Drops an idle page and returns its bytes, or 0 if the strategy refuses to remove the page.
    fn drop_page(&mut self, number: u32) -> u64 {
        if self.strategy.remove_page(number).is_err() {
            return 0;
        }
        let bytes = self.pages.remove(&number).map_or(0, |page| page.bytes);
        self.vacant.insert(number);
        self.stats.reserved.sub(bytes);
        self.stats.segments.sub(1);
        self.note_page(Action::PageFree, number, bytes);
        bytes
    }

    fn enter(&mut self, live: &Live) {
        let span = live.allocation.span;
        self.stats.allocated.add(span.size);
        self.stats.active.add(span.size);
        self.stats.requested.add(live.requested);
        self.stats.allocations.add(1);
        if let Some(page) = self.pages.get_mut(&span.page) {
            self.busy += if page.blocks == 0 { page.bytes } else { 0 };
            page.blocks += 1;
        }
        self.stats.inactive_split.set(self.busy - self.stats.active.current);
    }

    /// Updates the statistics when the caller frees a block. The memory of the block may still be in use.
    fn leave(&mut self, live: &Live) {
        self.stats.allocated.sub(live.allocation.span.size);
        self.stats.requested.sub(live.requested);
        self.stats.allocations.sub(1);
    }

    /// Returns the memory of a freed block to the strategy.
    fn release(&mut self, live: Live) -> Result<(), AllocError> {
        let span = self.strategy.free(live.allocation.handle)?;
        self.note(Action::Free, &live);
        self.stats.active.sub(span.size);
        let mut idle = false;
        if let Some(page) = self.pages.get_mut(&span.page) {
            page.blocks -= 1;
            idle = page.blocks == 0;
            self.busy -= if idle { page.bytes } else { 0 };
        }
        self.stats.inactive_split.set(self.busy - self.stats.active.current);
        if idle && self.options.release_idle {
            self.drop_page(span.page);
        }
        Ok(())
    }

    #[cold]
    fn out_of_memory(&mut self, asked: u64, name: &str, class: &str, device: Option<String>) -> AllocError {
        self.stats.num_ooms += 1;
        let labels = (self.label(name), self.label(class));
        self.push_event(Action::Oom, Span { page: 0, offset: 0, size: asked }, asked, (&labels.0, &labels.1));
        let largest = self.live.iter().map(|(_, live)| live).max_by_key(|live| live.allocation.span.size);
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            name: name.to_string(),
            class: class.to_string(),
            asked: Bytes(asked),
            allocated: Bytes(self.stats.allocated.current),
            reserved: Bytes(self.stats.reserved.current),
            largest_free: Bytes(self.strategy.largest_free()),
            cap: self.options.cap.map(Bytes),
            device,
            largest_live: largest.map(|live| (live.name.to_string(), Bytes(live.allocation.span.size))),
        }))
    }

    /// Returns the shared copy of a label. The same names recur every step and then need no heap allocation.
    fn label(&mut self, text: &str) -> Arc<str> {
        if let Some(label) = self.labels.get(text) {
            return label.clone();
        }
        let label: Arc<str> = text.into();
        self.labels.insert(label.clone());
        label
    }

    fn note(&mut self, action: Action, live: &Live) {
        if self.log.is_on() {
            self.push_event(action, live.allocation.span, live.requested, (&live.name, &live.class));
        }
    }

    fn note_page(&mut self, action: Action, page: u32, size: u64) {
        let none = self.label("");
        self.push_event(action, Span { page, offset: 0, size }, size, (&none, &none));
    }

    fn push_event(
        &mut self,
        action: Action,
        at: Span,
        requested: u64,
        (name, class): (&Arc<str>, &Arc<str>),
    ) {
        let Span { page, offset, size } = at;
        let (name, class) = (name.clone(), class.clone());
        self.log.push(AllocEvent { t: 0, action, page, offset, size, requested, name, class });
    }
}

fn block(allocation: Allocation, id: Handle) -> Block {
    let span = allocation.span;
    Block { page: span.page, offset: span.offset, size: span.size, id }
}

#[cfg(test)]
mod tests;
