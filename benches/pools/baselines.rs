//! wgrad's strategies and third-party allocators behind one interface.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

use wgrad::memory::{Handle, Strategy};

/// An allocator under test. The ids are the workload's.
pub trait Contender {
    /// Returns whether there was room.
    fn alloc(&mut self, id: usize, size: u64) -> bool;
    fn free(&mut self, id: usize);
}

pub const GRANULE: u64 = 256;

/// A strategy with one page.
pub struct Ours<S> {
    strategy: S,
    blocks: Vec<Option<Handle>>,
}

impl<S: Strategy> Ours<S> {
    pub fn new(mut strategy: S, blocks: usize, capacity: u64) -> Self {
        strategy.add_page(0, capacity, capacity).expect("a fresh page");
        Self { strategy, blocks: vec![None; blocks] }
    }
}

impl<S: Strategy> Contender for Ours<S> {
    fn alloc(&mut self, id: usize, size: u64) -> bool {
        self.blocks[id] = self.strategy.alloc(size, GRANULE).ok().map(|done| done.handle);
        self.blocks[id].is_some()
    }

    fn free(&mut self, id: usize) {
        if let Some(handle) = self.blocks[id].take() {
            self.strategy.free(handle).expect("live");
        }
    }
}

/// `offset-allocator`: `u32` units, here of 256 bytes; no alignment, no check of handles.
pub struct OffsetAllocator {
    inner: offset_allocator::Allocator,
    blocks: Vec<Option<offset_allocator::Allocation>>,
}

impl OffsetAllocator {
    pub fn new(blocks: usize, capacity: u64) -> Self {
        let units = u32::try_from(capacity / GRANULE).unwrap_or(u32::MAX);
        let inner = offset_allocator::Allocator::with_max_allocs(units, 4 * blocks as u32 + 16);
        Self { inner, blocks: vec![None; blocks] }
    }
}

impl Contender for OffsetAllocator {
    fn alloc(&mut self, id: usize, size: u64) -> bool {
        self.blocks[id] = self.inner.allocate(size.div_ceil(GRANULE) as u32);
        self.blocks[id].is_some()
    }

    fn free(&mut self, id: usize) {
        if let Some(block) = self.blocks[id].take() {
            self.inner.free(block);
        }
    }
}

/// `range-alloc`: a vector of free ranges, best fit by linear search.
pub struct RangeAlloc {
    inner: range_alloc::RangeAllocator<u64>,
    blocks: Vec<Option<Range<u64>>>,
}

impl RangeAlloc {
    pub fn new(blocks: usize, capacity: u64) -> Self {
        Self { inner: range_alloc::RangeAllocator::new(0..capacity), blocks: vec![None; blocks] }
    }
}

impl Contender for RangeAlloc {
    fn alloc(&mut self, id: usize, size: u64) -> bool {
        self.blocks[id] = self.inner.allocate_range(size.next_multiple_of(GRANULE)).ok();
        self.blocks[id].is_some()
    }

    fn free(&mut self, id: usize) {
        if let Some(range) = self.blocks[id].take() {
            self.inner.free_range(range);
        }
    }
}

/// `rlsf`: TLSF with headers in the memory it manages, so that it cannot serve GPU memory. 256 bytes of the
/// workload are one of its 32-byte units.
pub struct Rlsf {
    inner: rlsf::Tlsf<'static, u32, u32, 28, 32>,
    blocks: Vec<Option<NonNull<u8>>>,
    /// The memory that `inner` manages. Nothing may touch it while `inner` lives.
    _memory: Vec<MaybeUninit<u8>>,
}

const RLSF_ALIGN: usize = 8;

impl Rlsf {
    pub fn new(blocks: usize, capacity: u64) -> Self {
        let mut inner = rlsf::Tlsf::new();
        // Headers need room too. Pages of the range that are not touched take no memory.
        let bytes = (capacity / 8 + 64 * blocks as u64).min(8 << 30) as usize;
        let mut memory = uninit(bytes);
        // SAFETY: the memory lives as long as `inner`, and `inner` reaches it only through this slice.
        inner.insert_free_block(unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr(), bytes) });
        Self { inner, blocks: vec![None; blocks], _memory: memory }
    }
}

fn uninit(bytes: usize) -> Vec<MaybeUninit<u8>> {
    let mut memory = Vec::with_capacity(bytes);
    // SAFETY: the capacity was just reserved, and `MaybeUninit` needs no initialisation.
    unsafe { memory.set_len(bytes) };
    memory
}

impl Contender for Rlsf {
    fn alloc(&mut self, id: usize, size: u64) -> bool {
        let layout =
            Layout::from_size_align(size.div_ceil(8) as usize, RLSF_ALIGN).expect("a small alignment");
        self.blocks[id] = self.inner.allocate(layout);
        self.blocks[id].is_some()
    }

    fn free(&mut self, id: usize) {
        if let Some(block) = self.blocks[id].take() {
            // SAFETY: the block came from this allocator with this alignment and is given back once.
            unsafe { self.inner.deallocate(block, RLSF_ALIGN) };
        }
    }
}
