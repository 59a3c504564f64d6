//! Memory management on offsets and sizes: strategies that place blocks in pages, and pools that own the
//! pages. This module does not access the GPU, except through a pool's [`Backing`].
//!
//! A **page** is one contiguous range, in practice one GPU buffer; a **block** is an allocated part of a
//! page. A [`Strategy`] decides where in the existing pages a block is placed; a [`Pool`] decides when pages
//! are created and released. Offsets and sizes are `u64` bytes; every choice is deterministic.
//!
//! # Terms, as PyTorch uses them
//!
//! | term | bytes of |
//! |---|---|
//! | **requested** | the sizes that callers request, before padding |
//! | **allocated** | live blocks (allocated and not yet freed), padding included |
//! | **active** | live blocks, and freed blocks that the device may still use |
//! | **reserved** | all pages, whether or not they contain blocks |
//! | **inactive split** | holes in pages with active blocks: reserved, unused, and not releasable |
//! | **peak** | the largest value since the pool was created or its peaks were reset |
//!
//! These relations always hold: requested ≤ allocated ≤ active ≤ reserved, and active + inactive split + idle
//! pages = reserved.

mod backing;
mod error;
mod event;
mod growth;
mod options;
pub mod planner;
mod pool;
mod relocate;
mod request;
mod stats;
mod strategies;
mod summary;
mod traces;

pub use backing::{Backing, Offsets};
pub use error::{AllocError, OutOfMemory};
#[cfg(not(feature = "internals"))]
pub(crate) use event::{Action, AllocEvent, EventLog};
#[cfg(feature = "internals")]
pub use event::{Action, AllocEvent, EventLog};
pub use growth::Growth;
pub use options::PoolOptions;
pub use pool::Pool;
pub use request::{Block, Request};
#[cfg(not(feature = "internals"))]
pub(crate) use stats::Tally;
#[cfg(feature = "internals")]
pub use stats::Tally;
pub use stats::{MemoryStats, Stat};
#[cfg(not(feature = "internals"))]
pub(crate) use strategies::{
    Allocation, Bins, Buddy, Bump, Caching, Fit, FreeList, Handle, Learned, Mark, SizeClasses, Span, Whole,
};
#[cfg(feature = "internals")]
pub use strategies::{
    Allocation, Bins, Buddy, Bump, Caching, Fit, FreeList, Handle, Learned, Mark, SizeClasses, Span, Whole,
};
pub use strategies::{Kind, Strategy};
pub use summary::memory_summary;
pub use traces::trace;
#[cfg(not(feature = "internals"))]
pub(crate) use traces::{Dump, DumpBlock, DumpSegment, Label, PickleError, picture, replay, snapshot};
#[cfg(feature = "internals")]
pub use traces::{Dump, DumpBlock, DumpSegment, Label, PickleError, picture, replay, snapshot};
#[cfg(not(feature = "internals"))]
pub(crate) use {
    relocate::Move,
    request::{LiveBlock, PageInfo},
};
#[cfg(feature = "internals")]
pub use {
    relocate::Move,
    request::{LiveBlock, PageInfo},
};
