//! Memory as numbers: strategies that place blocks in pages, and pools that own the pages. No GPU is touched here.
//!
//! A **page** is one contiguous range, in practice one GPU buffer; a **block** is a part of a page that was handed
//! out. A [`Strategy`] decides where in the existing pages a block goes; a [`Pool`] decides when pages come and go.
//! Offsets and sizes are `u64` bytes; every choice is deterministic.
//!
//! # Words, as PyTorch uses them
//!
//! | word | bytes of |
//! |---|---|
//! | **requested** | what callers asked for, before padding |
//! | **allocated** | blocks handed out and not given back, padding included |
//! | **active** | allocated blocks, and blocks given back that the device may still be using |
//! | **reserved** | all pages, whether or not anything lives in them |
//! | **inactive split** | holes in pages in which something is active: reserved, unused, and not releasable |
//! | **peak** | the largest value that a number had since the pool was made or its peaks were reset |
//!
//! Always requested ≤ allocated ≤ active ≤ reserved, and active + inactive split + idle pages = reserved.

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
    Allocation, Bins, Buddy, Bump, Caching, Fit, FreeList, Handle, Mark, SizeClasses, Span, Whole,
};
#[cfg(feature = "internals")]
pub use strategies::{
    Allocation, Bins, Buddy, Bump, Caching, Fit, FreeList, Handle, Mark, SizeClasses, Span, Whole,
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
