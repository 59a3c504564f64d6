//! The trait that every strategy implements, and the list of strategies by name.

mod bins;
mod buddy;
mod bump;
mod caching;
mod free_list;
mod handle;
mod learned;
mod size_classes;
mod tiling;
mod whole;

pub use bins::Bins;
pub use buddy::Buddy;
pub use bump::{Bump, Mark};
pub use caching::Caching;
pub use free_list::{Fit, FreeList};
pub use handle::Handle;
pub(super) use handle::Slots;
pub use learned::Learned;
pub use size_classes::SizeClasses;
pub use whole::Whole;

use super::AllocError;
use crate::units::Bytes;

/// A part of a page, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Number of the page.
    pub page: u32,
    /// First byte within the page.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
}

/// A block allocated by a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its location; `span.size` is the requested size, padded to the granule or more.
    pub span: Span,
    /// The handle for [`Strategy::free`], valid once.
    pub handle: Handle,
}

/// Places blocks in pages. With one page it is an allocator over one range; with several pages it is the core
/// of a [`Pool`](super::Pool). A call that returns an error changes nothing.
pub trait Strategy: std::fmt::Debug {
    /// Adds a page of `bytes` (rounded down to the granule) with the number `page`. `request` is the size of
    /// the request that needs the page, for strategies that separate blocks by size.
    ///
    /// # Errors
    /// [`AllocError::PageExists`], [`AllocError::BadPage`].
    fn add_page(&mut self, page: u32, bytes: u64, request: u64) -> Result<(), AllocError>;

    /// Removes a page without live blocks.
    ///
    /// # Errors
    /// [`AllocError::UnknownPage`], [`AllocError::PageInUse`].
    fn remove_page(&mut self, page: u32) -> Result<(), AllocError>;

    /// Allocates `size` bytes at a multiple of `align`, both raised to the granule. Size 0 counts as one
    /// byte, so any two live blocks are disjoint and not empty.
    ///
    /// # Errors
    /// [`AllocError::NoSpace`], [`AllocError::BadAlignment`].
    fn alloc(&mut self, size: u64, align: u64) -> Result<Allocation, AllocError>;

    /// Frees a block and returns its location.
    ///
    /// # Errors
    /// [`AllocError::NotAllocated`], [`AllocError::ForeignHandle`].
    fn free(&mut self, handle: Handle) -> Result<Span, AllocError>;

    /// Ends a step: what follows is expected to repeat it. Returns the bytes of one hole that the strategy will
    /// need for a plan of the next step, if it has made a new plan. Strategies that do not learn do nothing.
    fn end_step(&mut self) -> Option<u64> {
        None
    }

    /// Returns the bytes of the smallest fresh page that certainly holds a block of `size` bytes at `align`;
    /// `None` on overflow.
    fn least_page(&self, size: u64, _align: u64) -> Option<u64> {
        align_up(size.max(1), self.granule())
    }

    /// Returns the smallest unit in bytes: every offset and size is a multiple of it.
    fn granule(&self) -> u64;

    /// Returns the bytes of all pages.
    fn capacity(&self) -> u64;

    /// Returns the free bytes. The padding of a block counts as allocated.
    fn free_bytes(&self) -> u64;

    /// Returns the number of live blocks.
    fn live(&self) -> usize;

    /// Returns the ranges that can be allocated, ordered by page and offset. Slow: for reports and checks.
    fn free_spans(&self) -> Vec<Span>;

    /// Returns the bytes of the largest hole; 0 if full. Slow: for reports.
    fn largest_free(&self) -> u64 {
        self.free_spans().iter().map(|span| span.size).max().unwrap_or(0)
    }
}

/// The strategies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `Bump`: a stack; frees only from the top.
    Bump,
    /// `FreeList`: address-ordered, coalescing.
    FreeList(Fit),
    /// `Bins`: constant time, holes in bins by size.
    Bins,
    /// `Buddy`: powers of two.
    Buddy,
    /// `SizeClasses`: slabs of equal slots for small blocks, best fit for the rest.
    SizeClasses,
    /// `Caching`: PyTorch's rules.
    Caching,
    /// `Learned`: places each step by a plan of the step before, what deviates by bins.
    Learned,
    /// `Whole`: one block per page.
    Whole,
}

impl Kind {
    /// Every strategy, in the order used in tables.
    pub const ALL: [Self; 12] = [
        Self::Bump,
        Self::FreeList(Fit::First),
        Self::FreeList(Fit::Best),
        Self::FreeList(Fit::Worst),
        Self::FreeList(Fit::Next),
        Self::FreeList(Fit::Ends),
        Self::Bins,
        Self::Buddy,
        Self::SizeClasses,
        Self::Caching,
        Self::Learned,
        Self::Whole,
    ];

    /// Returns the name in tables and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bump => "bump",
            Self::FreeList(Fit::First) => "first-fit",
            Self::FreeList(Fit::Best) => "best-fit",
            Self::FreeList(Fit::Worst) => "worst-fit",
            Self::FreeList(Fit::Next) => "next-fit",
            Self::FreeList(Fit::Ends) => "two-ended",
            Self::Bins => "bins",
            Self::Buddy => "buddy",
            Self::SizeClasses => "size-classes",
            Self::Caching => "pytorch",
            Self::Learned => "learned",
            Self::Whole => "whole",
        }
    }

    /// Returns the strategy with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Creates the strategy, without pages.
    ///
    /// # Errors
    /// [`AllocError::BadAlignment`] if `granule` (bytes) is not a power of two.
    pub fn build(self, granule: u64) -> Result<Box<dyn Strategy + Send>, AllocError> {
        Ok(match self {
            Self::Bump => Box::new(Bump::new(granule)?),
            Self::FreeList(fit) => Box::new(FreeList::new(granule, fit)?),
            Self::Bins => Box::new(Bins::new(granule)?),
            Self::Buddy => Box::new(Buddy::new(granule)?),
            Self::SizeClasses => Box::new(SizeClasses::new(granule)?),
            Self::Caching => Box::new(Caching::new(granule)?),
            Self::Learned => Box::new(Learned::new(granule)?),
            Self::Whole => Box::new(Whole::new(granule)?),
        })
    }
}

/// A request with size and alignment raised to the granule, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padded {
    pub(super) size: u64,
    pub(super) align: u64,
}

pub(super) fn check_granule(granule: u64) -> Result<u64, AllocError> {
    if granule.is_power_of_two() { Ok(granule) } else { Err(AllocError::BadAlignment { align: granule }) }
}

/// Returns the smallest multiple of `align` that is ≥ `n`; `None` on overflow. `align` must be a power of
/// two, so that this is a mask and not a division: every allocation calls it.
pub(super) const fn align_up(n: u64, align: u64) -> Option<u64> {
    match n.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

/// Pads a request to the granule. A size that overflows cannot fit and gives [`AllocError::NoSpace`].
pub(super) fn pad(strategy: &impl Strategy, size: u64, align: u64) -> Result<Padded, AllocError> {
    if !align.is_power_of_two() {
        return Err(AllocError::BadAlignment { align });
    }
    let granule = strategy.granule();
    match align_up(size.max(1), granule) {
        Some(size) => Ok(Padded { size, align: align.max(granule) }),
        None => Err(no_space(strategy, size, align)),
    }
}

#[cold]
pub(super) fn no_space(strategy: &impl Strategy, size: u64, align: u64) -> AllocError {
    AllocError::NoSpace {
        size: Bytes(size),
        align,
        free: Bytes(strategy.free_bytes()),
        capacity: Bytes(strategy.capacity()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_round_trip() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::from_name("nothing"), None);
    }

    #[test]
    fn every_strategy_refuses_a_granule_that_is_no_power_of_two() {
        for kind in Kind::ALL {
            for granule in [0, 3, 257] {
                assert_eq!(
                    kind.build(granule).err(),
                    Some(AllocError::BadAlignment { align: granule }),
                    "{kind:?}"
                );
            }
        }
    }
}
