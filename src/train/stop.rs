//! Stopping of a run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a [`Trainer`](super::Trainer), from a signal handler or another thread. What is under way is finished
/// (a step, or the evaluation after an epoch), [`Trainer::fit`](super::Trainer::fit) returns
/// [`Error::Stopped`](crate::Error::Stopped), and a [`Checkpoint`](super::Checkpoint) saves the state, from
/// which a later `fit` continues. A request in the last epoch's last step, or in its evaluation, has no effect: the
/// run ends as it would have. Of several ranks, all stop after the same step.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Requests the stop. Safe to call in a signal handler.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop is requested.
    pub(super) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends the request.
    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
