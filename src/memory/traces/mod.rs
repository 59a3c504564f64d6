//! What happened in a pool or a planner, as data: allocation traces, their replay through every strategy, and PyTorch's
//! memory snapshots, read and written.

mod dump;
mod pickle;
pub mod picture;
pub mod replay;
pub mod snapshot;
pub mod trace;

pub use dump::{Dump, DumpBlock, DumpSegment, Label};
pub use pickle::PickleError;
