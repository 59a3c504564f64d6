//! Stopping of a run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a [`Trainer`](super::Trainer), from a signal handler or another thread. The step that runs is
/// finished, [`Trainer::fit`](super::Trainer::fit) returns
/// [`Error::Stopped`](crate::Error::Stopped), and a [`Checkpoint`](super::Checkpoint) saves the state, from
/// which a later `fit` continues.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Requests the stop. Safe to call in a signal handler.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested since the last call.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
