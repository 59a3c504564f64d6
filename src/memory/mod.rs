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
mod bins;
mod buddy;
mod bump;
mod caching;
mod dump;
mod error;
mod event;
mod free_list;
mod growth;
mod handle;
mod options;
mod pickle;
pub mod picture;
pub mod planner;
mod pool;
mod relocate;
pub mod replay;
mod request;
mod size_classes;
pub mod snapshot;
mod stats;
mod strategy;
mod summary;
mod tiling;
pub mod trace;
mod whole;

pub use backing::{Backing, Offsets};
pub use bins::Bins;
pub use buddy::Buddy;
pub use bump::{Bump, Mark};
pub use caching::Caching;
pub use dump::{Dump, DumpBlock, DumpSegment, Label};
pub use error::{AllocError, OutOfMemory};
pub use event::{Action, AllocEvent, EventLog};
pub use free_list::{Fit, FreeList};
pub use growth::Growth;
pub use handle::Handle;
pub use options::PoolOptions;
pub use pickle::PickleError;
pub use pool::Pool;
pub use relocate::Move;
pub use request::{Block, LiveBlock, PageInfo, Request};
pub use size_classes::SizeClasses;
pub use stats::{MemoryStats, Stat, Tally};
pub use strategy::{Allocation, Kind, Span, Strategy};
pub use summary::memory_summary;
pub use whole::Whole;
