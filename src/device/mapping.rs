//! Waiting for the device: for a buffer that is mapped for the host, and for submitted work.

use std::ops::RangeBounds;
#[cfg(not(target_family = "wasm"))]
use std::time::Duration;

use super::signal::Signal;
use super::{Device, maybe_async};
use crate::error::Result;
#[cfg(not(target_family = "wasm"))]
use crate::time::Instant;

/// A longer wait means that a GPU hangs.
#[cfg(not(target_family = "wasm"))]
const TIMEOUT: Duration = Duration::from_secs(300);

/// The same for a software adapter, on which a step of a large network takes minutes on a busy machine.
#[cfg(not(target_family = "wasm"))]
const SOFTWARE_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// A pending mapping of a buffer for the host.
pub struct Mapping {
    signal: Signal,
    /// In browsers the callback comes by itself.
    #[cfg_attr(target_family = "wasm", allow(dead_code))]
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
        let signal = Signal::default();
        let callback = signal.clone();
        buffer.map_async(mode, bytes, move |result| callback.set(result.is_ok()));
        Mapping { signal, submission }
    }

    /// Waits until `submission` is done, or everything submitted so far.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost) if the device hangs or is gone;
    /// [`Error::Device`](crate::Error::Device) for an error that it reported meanwhile.
    #[cfg(not(target_family = "wasm"))]
    pub fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let timeout = if self.limits().class.is_cpu() { SOFTWARE_TIMEOUT } else { TIMEOUT };
        let poll = wgpu::PollType::Wait { submission_index: submission, timeout: Some(timeout) };
        match self.wgpu_device().poll(poll) {
            Ok(_) => self.failure(),
            Err(e) => {
                self.failure()?;
                Err(self.lose(format!("waiting for it failed: {e}")))
            }
        }
    }

    /// Waits until everything submitted so far is done.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost) if the device is gone; [`Error::Device`](crate::Error::Device) for an
    /// error that it reported meanwhile.
    #[cfg(target_family = "wasm")]
    pub async fn wait(&self, _: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let signal = Signal::default();
        let callback = signal.clone();
        self.wgpu_queue().on_submitted_work_done(move || callback.set(true));
        signal.await;
        self.failure()
    }
}

impl Mapping {
    /// Whether [`Mapping::wait`] would return at once.
    pub(crate) fn is_done(&self) -> bool {
        self.signal.outcome().is_some()
    }

    /// Waits until the buffer is mapped.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost) if the device hangs or is gone; [`Error::Device`](crate::Error::Device) if the
    /// buffer cannot be mapped.
    #[maybe_async]
    pub async fn wait(&self, device: &Device) -> Result<()> {
        if self.called_back(device).await? {
            return Ok(());
        }
        device.poll()?;
        Err(device.refused("to map a buffer", &"it is not available"))
    }

    #[cfg(not(target_family = "wasm"))]
    fn called_back(&self, device: &Device) -> Result<bool> {
        if !self.is_done() {
            device.wait(self.submission.clone())?;
        }
        // Another thread's poll may have taken the callback and be about to run it.
        let start = Instant::now();
        loop {
            if let Some(mapped) = self.signal.outcome() {
                return Ok(mapped);
            }
            if start.elapsed() > TIMEOUT {
                return Err(device.lose("a buffer was never mapped".to_owned()));
            }
            std::thread::sleep(Duration::from_micros(20));
            device.poll()?;
        }
    }

    #[cfg(target_family = "wasm")]
    async fn called_back(&self, _: &Device) -> Result<bool> {
        Ok(self.signal.clone().await)
    }
}
