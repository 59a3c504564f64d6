//! All submits to the queue go through here: running out of memory during a submit is an error of that call.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Device;
use crate::error::{Error, Result};

/// Number of submits so far.
#[derive(Debug, Default)]
pub(super) struct Submits(AtomicU64);

/// A simulated failure, to test how an app handles it: 0 for none, else the number of submits until it.
#[derive(Debug, Default)]
pub(super) struct Rehearsal(AtomicU32);

impl Rehearsal {
    /// Counts a submit; returns whether it is the one that fails.
    fn fails(&self) -> bool {
        let count = |left: u32| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) == Ok(1)
    }
}

impl Device {
    /// Submits what was encoded.
    ///
    /// # Errors
    /// [`Error::SubmitOutOfMemory`] if the device has no memory for the commands, which then do not run;
    /// [`Error::Device`] and [`Error::DeviceLost`] for errors that it reported so far.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn submit(&self, encoder: wgpu::CommandEncoder) -> Result<wgpu::SubmissionIndex> {
        self.alive()?;
        if self.shared.rehearsal.fails() {
            let message = "rehearsed by `Device::fail_submit`".to_owned();
            return Err(Error::SubmitOutOfMemory { used: self.used_bytes(), message });
        }
        self.shared.submits.0.fetch_add(1, Ordering::Relaxed);
        let submission = self.wgpu_queue().submit([encoder.finish()]);
        self.failure()?;
        Ok(submission)
    }

    /// Returns the number of submits so far.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn submits(&self) -> u64 {
        self.shared.submits.0.load(Ordering::Relaxed)
    }

    /// Makes the `n`th submit from now fail once as if the device had run out of memory, to test how an app
    /// handles it. 1 is the next submit; with 0 none fails.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn fail_submit(&self, n: u32) {
        self.shared.rehearsal.0.store(n, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_chosen_submit_fails() {
        let rehearsal = Rehearsal::default();
        assert!(!rehearsal.fails());
        rehearsal.0.store(3, Ordering::Relaxed);
        let outcomes: Vec<bool> = (0..5).map(|_| rehearsal.fails()).collect();
        assert_eq!(outcomes, [false, false, true, false, false]);
    }
}
