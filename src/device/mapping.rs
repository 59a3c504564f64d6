//! Mapping of buffers for the host, and waiting for it.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::{Device, TIMEOUT};
use crate::error::Result;

const PENDING: u8 = 0;
const MAPPED: u8 = 1;

/// A pending mapping of a buffer for the host.
pub struct Mapping {
    state: Arc<AtomicU8>,
    submission: Option<wgpu::SubmissionIndex>,
}

impl Device {
    /// Requests that a buffer be mapped once `submission`, or everything submitted so far, is done with it.
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn map(
        &self,
        buffer: &wgpu::Buffer,
        mode: wgpu::MapMode,
        bytes: impl RangeBounds<u64>,
        submission: Option<wgpu::SubmissionIndex>,
    ) -> Mapping {
        let state = Arc::new(AtomicU8::new(PENDING));
        let shared = Arc::clone(&state);
        buffer.map_async(mode, bytes, move |result| {
            shared.store(if result.is_ok() { MAPPED } else { MAPPED + 1 }, Ordering::Release);
        });
        Mapping { state, submission }
    }
}

impl Mapping {
    /// Whether [`Mapping::wait`] would return at once.
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) != PENDING
    }

    /// Blocks until the buffer is mapped.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost) if the device hangs or is gone; [`Error::Device`](crate::Error::Device) if the
    /// buffer cannot be mapped.
    pub fn wait(&self, device: &Device) -> Result<()> {
        if !self.is_done() {
            device.wait(self.submission.clone())?;
        }
        // Another thread's poll may have taken the callback and be about to run it.
        let start = Instant::now();
        while !self.is_done() {
            if start.elapsed() > TIMEOUT {
                return Err(device.lose("a buffer was never mapped".to_owned()));
            }
            std::thread::sleep(Duration::from_micros(20));
            device.poll()?;
        }
        if self.state.load(Ordering::Acquire) == MAPPED {
            return Ok(());
        }
        device.poll()?;
        Err(device.refused("to map a buffer", &"it is not available"))
    }
}
