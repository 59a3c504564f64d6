//! Errors of memory allocation. Each variant reports what happened, the numbers, and a remedy.

use crate::units::Bytes;

/// An allocation, a free, a page or an option that was refused. The live blocks and their memory are
/// unchanged; a pool that runs out of memory may have released idle pages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No hole in the pages of a strategy is large enough.
    #[error(
        "no hole for {size} aligned to {align} bytes: {free} of {capacity} are free, in pieces; \
         add a page or free something"
    )]
    NoSpace {
        /// Bytes requested, padded to the granule.
        size: Bytes,
        /// Alignment requested, in bytes.
        align: u64,
        /// Free bytes, all holes together.
        free: Bytes,
        /// Bytes of all pages.
        capacity: Bytes,
    },
    /// An alignment or granule that is 0 or not a power of two.
    #[error("alignment {align} is not a power of two; use 256 for storage bindings")]
    BadAlignment {
        /// The refused value, in bytes.
        align: u64,
    },
    /// The handle was created by this allocator, but its block is no longer allocated: it was freed already,
    /// or dropped by a reset.
    #[error("block {slot} is not allocated (freed twice, or dropped by a reset); free each block once")]
    NotAllocated {
        /// Slot of the handle.
        slot: u32,
    },
    /// The handle was created by another allocator.
    #[error("block {slot} belongs to another allocator; free it where it was allocated")]
    ForeignHandle {
        /// Slot of the handle.
        slot: u32,
    },
    /// A page number that does not exist.
    #[error("there is no page {page}")]
    UnknownPage {
        /// The page asked for.
        page: u32,
    },
    /// A page number that exists already.
    #[error("page {page} exists already; remove it first or use another number")]
    PageExists {
        /// The page asked for.
        page: u32,
    },
    /// A page cannot be removed while it contains live blocks.
    #[error("page {page} still holds live blocks; free or relocate them first")]
    PageInUse {
        /// The page asked for.
        page: u32,
    },
    /// A page smaller than one granule, or so large that offsets or totals would overflow.
    #[error("a page of {bytes} bytes is not usable with a granule of {granule} bytes")]
    BadPage {
        /// Bytes of the refused page.
        bytes: u64,
        /// Granule of the strategy, in bytes.
        granule: u64,
    },
    /// A request larger than any page that the pool may create.
    #[error(
        "`{name}` ({class}) asks for {asked}, more than the largest page, {max_page}; split it, shrink the batch, \
         or choose an adapter with larger buffers"
    )]
    TooLarge {
        /// Name of the tensor.
        name: Box<str>,
        /// Class of the tensor.
        class: Box<str>,
        /// Bytes asked for.
        asked: Bytes,
        /// Largest page that the pool may create.
        max_page: Bytes,
    },
    /// A request that does not fit under the pool's cap, or for which the device refused a page.
    #[error(transparent)]
    OutOfMemory(#[from] Box<OutOfMemory>),
    /// An option with an invalid value.
    #[error("pool option `{option}` = {value}: {why}")]
    BadOption {
        /// Name of the option.
        option: &'static str,
        /// The refused value.
        value: u64,
        /// Which values are valid.
        why: &'static str,
    },
}

/// Details of [`AllocError::OutOfMemory`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` ({class}) did not fit: it asks for {asked}, {allocated} are in use in {reserved} reserved \
     (largest hole {largest_free}){}; {}", self.limit(), self.way_out()
)]
pub struct OutOfMemory {
    /// Name of the tensor that did not fit.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Bytes asked for, padded.
    pub asked: Bytes,
    /// Bytes in live blocks.
    pub allocated: Bytes,
    /// Bytes of all pages.
    pub reserved: Bytes,
    /// Largest hole in these pages.
    pub largest_free: Bytes,
    /// Cap of the pool; `None` if it has none.
    pub cap: Option<Bytes>,
    /// Message of the device, if the device refused the page.
    pub device: Option<String>,
    /// Name and bytes of the largest live block.
    pub largest_live: Option<(String, Bytes)>,
}

impl OutOfMemory {
    fn limit(&self) -> String {
        match (&self.device, self.cap) {
            (Some(reason), _) => format!(", and the device refused another page: {reason}"),
            (None, Some(cap)) => format!(", under a cap of {cap}"),
            (None, None) => String::new(),
        }
    }

    fn way_out(&self) -> String {
        let largest =
            self.largest_live.as_ref().map_or(String::new(), |(n, b)| format!("; the largest is `{n}`, {b}"));
        let raise = match (&self.device, self.cap) {
            (None, Some(_)) => {
                format!("raise the cap to {} ", Bytes(self.reserved.0.saturating_add(self.asked.0)))
            }
            _ => "shrink the batch ".to_string(),
        };
        format!("{raise}or free {} first{largest}", self.asked)
    }
}
