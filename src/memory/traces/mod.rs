//! Allocation traces of pools and planners, their replay through every strategy, and reading and writing of
//! PyTorch's memory snapshots.

mod dump;
pub mod picture;
pub mod replay;
pub mod snapshot;
pub mod trace;

pub use crate::pickle::PickleError;
pub use dump::{Dump, DumpBlock, DumpSegment, Label};
