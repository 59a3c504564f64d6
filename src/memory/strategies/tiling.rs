//! Pages divided into tiles, each free or used: the mechanism of the free list, the bins and PyTorch's rules.
//! They differ in the [`FreeIndex`] that chooses a hole.

use std::collections::BTreeMap;

use super::handle::{Handle, Owner};
use super::{Allocation, Padded, Span, Strategy, align_up, check_granule, no_space, pad};
use crate::memory::AllocError;

/// The slot that means "no tile". It holds a sentinel tile, which is empty and counts as used, so that code
/// can follow and write links to it without a branch that a processor would mispredict half the time.
pub(super) const NONE: u32 = 0;

/// One tile. The tiles of a page, linked by `next`, cover it without gaps; no two adjacent tiles are free.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) page: u32,
    prev: u32,
    next: u32,
    /// Odd while the tile is allocated. Each allocation and each free adds one, so that old handles do not
    /// match.
    generation: u32,
    /// Two links that an index may use for a list of free tiles.
    pub(super) links: [u32; 2],
}

impl Tile {
    fn free(page: u32, offset: u64, size: u64) -> Self {
        Self { offset, size, page, prev: NONE, next: NONE, generation: 0, links: [NONE; 2] }
    }

    fn is_used(&self) -> bool {
        self.generation & 1 == 1
    }

    /// Returns the offset of `want` at that end of this tile, if it fits.
    #[inline]
    pub(super) fn fit(&self, want: Padded, end: End) -> Option<u64> {
        let limit = self.offset + self.size;
        let start = match end {
            End::Low => align_up(self.offset, want.align)?,
            End::High => limit.checked_sub(want.size)? & !(want.align - 1),
        };
        (start >= self.offset && start.checked_add(want.size)? <= limit).then_some(start)
    }
}

/// The end of a hole from which a block is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The lowest offset.
    Low,
    /// The highest offset.
    High,
}

/// Stores the free tiles and chooses one for a request.
pub trait FreeIndex: std::fmt::Debug {
    /// Adds tile `slot`, which has become free.
    fn insert(&mut self, tiles: &mut [Tile], slot: u32);
    /// Removes tile `slot`, whose size and offset are the same as at insertion.
    fn remove(&mut self, tiles: &mut [Tile], slot: u32);
    /// Returns a tile in which `want` fits, and the end to cut it from; `capacity` is the bytes of all pages.
    fn find(&mut self, tiles: &[Tile], want: Padded, capacity: u64) -> Option<(u32, End)>;
}

/// A strategy over tiles. See [`FreeList`](super::FreeList) and [`Bins`](super::Bins).
#[derive(Debug)]
pub struct Tiling<I> {
    pub(super) index: I,
    tiles: Vec<Tile>,
    vacant: Vec<u32>,
    /// First tile of each page. It stays the first because merging and cutting keep the slot of the left
    /// tile.
    pages: BTreeMap<u32, u32>,
    owner: Owner,
    granule: u64,
    /// A remainder smaller than this stays with the block.
    min_split: u64,
    capacity: u64,
    free_bytes: u64,
    live: usize,
}

impl<I: FreeIndex> Tiling<I> {
    pub(super) fn with_index(granule: u64, min_split: u64, index: I) -> Result<Self, AllocError> {
        Ok(Self {
            index,
            tiles: vec![Tile { generation: 1, ..Tile::free(0, 0, 0) }],
            vacant: Vec::new(),
            pages: BTreeMap::new(),
            owner: Owner::new(),
            granule: check_granule(granule)?,
            min_split,
            capacity: 0,
            free_bytes: 0,
            live: 0,
        })
    }

    pub(super) fn has_page(&self, page: u32) -> bool {
        self.pages.contains_key(&page)
    }

    fn new_tile(&mut self, page: u32, offset: u64, size: u64) -> u32 {
        let tile = Tile::free(page, offset, size);
        match self.vacant.pop() {
            Some(slot) => {
                let generation = self.tiles[slot as usize].generation;
                self.tiles[slot as usize] = Tile { generation, ..tile };
                slot
            }
            None => {
                self.tiles.push(tile);
                (self.tiles.len() - 1) as u32
            }
        }
    }

    /// Cuts tile `slot` after `size` bytes and returns the slot of the right part.
    fn cut(&mut self, slot: u32, size: u64) -> u32 {
        let left = self.tiles[slot as usize];
        let right = self.new_tile(left.page, left.offset + size, left.size - size);
        self.tiles[slot as usize].size = size;
        self.tiles[slot as usize].next = right;
        self.tiles[right as usize].prev = slot;
        self.tiles[right as usize].next = left.next;
        self.tiles[left.next as usize].prev = right;
        right
    }

    /// Merges tile `slot` with its right neighbour, whose slot becomes vacant.
    fn join_next(&mut self, slot: u32) {
        let right = self.tiles[slot as usize].next;
        let Tile { size, next, .. } = self.tiles[right as usize];
        let left = &mut self.tiles[slot as usize];
        left.size += size;
        left.next = next;
        self.tiles[next as usize].prev = slot;
        self.vacant.push(right);
    }

    fn is_free(&self, slot: u32) -> bool {
        !self.tiles[slot as usize].is_used()
    }

    fn slot_of(&self, handle: Handle) -> Result<u32, AllocError> {
        let slot = handle.slot;
        if handle.owner != self.owner {
            return Err(AllocError::ForeignHandle { slot });
        }
        match self.tiles.get(slot as usize) {
            Some(tile) if tile.is_used() && tile.generation == handle.generation => Ok(slot),
            _ => Err(AllocError::NotAllocated { slot }),
        }
    }
}

impl<I: FreeIndex> Strategy for Tiling<I> {
    fn add_page(&mut self, page: u32, bytes: u64, _request: u64) -> Result<(), AllocError> {
        if self.pages.contains_key(&page) {
            return Err(AllocError::PageExists { page });
        }
        let size = bytes / self.granule * self.granule;
        let capacity = self.capacity.checked_add(size).filter(|_| size > 0);
        self.capacity = capacity.ok_or(AllocError::BadPage { bytes, granule: self.granule })?;
        self.free_bytes += size;
        let slot = self.new_tile(page, 0, size);
        self.pages.insert(page, slot);
        self.index.insert(&mut self.tiles, slot);
        Ok(())
    }

    fn remove_page(&mut self, page: u32) -> Result<(), AllocError> {
        let slot = *self.pages.get(&page).ok_or(AllocError::UnknownPage { page })?;
        let tile = self.tiles[slot as usize];
        if tile.is_used() || tile.next != NONE {
            return Err(AllocError::PageInUse { page });
        }
        self.index.remove(&mut self.tiles, slot);
        self.pages.remove(&page);
        self.vacant.push(slot);
        self.capacity -= tile.size;
        self.free_bytes -= tile.size;
        Ok(())
    }

    #[inline]
    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError> {
        let want = pad(self, size, align)?;
        let found = self.index.find(&self.tiles, want, self.capacity);
        let placed = found.and_then(|(slot, end)| Some((slot, self.tiles[slot as usize].fit(want, end)?)));
        let Some((mut slot, start)) = placed else {
            return Err(no_space(self, want.size, want.align));
        };
        self.index.remove(&mut self.tiles, slot);
        let front = start - self.tiles[slot as usize].offset;
        if front > 0 {
            let right = self.cut(slot, front);
            self.index.insert(&mut self.tiles, slot);
            slot = right;
        }
        let rest = self.tiles[slot as usize].size - want.size;
        if rest > 0 && rest >= self.min_split {
            let right = self.cut(slot, want.size);
            self.index.insert(&mut self.tiles, right);
        }
        let tile = &mut self.tiles[slot as usize];
        tile.generation = tile.generation.wrapping_add(1);
        self.free_bytes -= tile.size;
        self.live += 1;
        let span = Span { page: tile.page, offset: tile.offset, size: tile.size };
        Ok(Allocation { span, handle: Handle { owner: self.owner, slot, generation: tile.generation } })
    }

    #[inline]
    fn free(&mut self, handle: Handle) -> Result<Span, AllocError> {
        let mut slot = self.slot_of(handle)?;
        let tile = &mut self.tiles[slot as usize];
        tile.generation = tile.generation.wrapping_add(1);
        let Tile { offset, size, page, prev, next, .. } = *tile;
        self.free_bytes += size;
        self.live -= 1;
        if self.is_free(next) {
            self.index.remove(&mut self.tiles, next);
            self.join_next(slot);
        }
        if self.is_free(prev) {
            self.index.remove(&mut self.tiles, prev);
            self.join_next(prev);
            slot = prev;
        }
        self.index.insert(&mut self.tiles, slot);
        Ok(Span { page, offset, size })
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
        self.live
    }

    fn free_spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for &first in self.pages.values() {
            let mut slot = first;
            while slot != NONE {
                let tile = &self.tiles[slot as usize];
                if !tile.is_used() {
                    spans.push(Span { page: tile.page, offset: tile.offset, size: tile.size });
                }
                slot = tile.next;
            }
        }
        spans
    }
}
