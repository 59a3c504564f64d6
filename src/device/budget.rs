//! Limit on the bytes of a device that this crate may use. It is enforced here, because software adapters and
//! Metal never report that they are out of memory.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Device;
use crate::units::Bytes;

/// Bytes in use, and the maximum. Shared by every clone of a device.
#[derive(Debug)]
pub(super) struct Budget {
    used: Arc<AtomicU64>,
    most: AtomicU64,
}

impl Budget {
    pub(super) fn unlimited() -> Self {
        Self { used: Arc::default(), most: AtomicU64::new(u64::MAX) }
    }

    /// Returns the counter of bytes in use, for error reports.
    pub(super) fn used(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.used)
    }

    /// Claims `bytes`, or returns why the budget does not allow it.
    pub(super) fn claim(&self, bytes: u64) -> Result<Claim, String> {
        let most = self.most.load(Ordering::Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= most);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Claim { used: Arc::clone(&self.used), bytes }),
            Err(used) => Err(format!("the device's budget is {}, {} of it in use", Bytes(most), Bytes(used))),
        }
    }
}

/// Bytes claimed from a budget, released on drop.
#[derive(Debug)]
pub(super) struct Claim {
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A buffer whose bytes count against the device's budget until it is dropped.
#[derive(Debug)]
pub struct Buffer {
    raw: wgpu::Buffer,
    _claim: Claim,
}

impl Buffer {
    pub(super) fn new(raw: wgpu::Buffer, claim: Claim) -> Self {
        Self { raw, _claim: claim }
    }
}

impl Deref for Buffer {
    type Target = wgpu::Buffer;

    fn deref(&self) -> &wgpu::Buffer {
        &self.raw
    }
}

impl Device {
    /// Limits the bytes of all buffers that this crate may have on the device at once, those of other
    /// sessions included; `None` for no limit. Existing buffers stay, even if they exceed the limit.
    pub fn set_budget(&self, most: Option<Bytes>) {
        self.shared.budget.most.store(most.map_or(u64::MAX, |bytes| bytes.0), Ordering::Relaxed);
    }

    /// Returns the limit set by [`Device::set_budget`].
    pub fn budget(&self) -> Option<Bytes> {
        let most = self.shared.budget.most.load(Ordering::Relaxed);
        (most != u64::MAX).then_some(Bytes(most))
    }

    /// Returns the bytes that the budget leaves, 0 if more is in use than it allows; `None` without a budget.
    pub fn free_bytes(&self) -> Option<u64> {
        self.budget().map(|Bytes(most)| most.saturating_sub(self.used_bytes()))
    }

    /// Returns the bytes of all buffers that this crate has on the device now.
    pub fn used_bytes(&self) -> u64 {
        self.shared.budget.used.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_limited_and_released() {
        let budget = Budget::unlimited();
        budget.most.store(100, Ordering::Relaxed);
        let first = budget.claim(60).unwrap();
        assert!(budget.claim(41).unwrap_err().contains("60 B of it in use"));
        let second = budget.claim(40).unwrap();
        drop((first, second));
        assert!(budget.claim(100).is_ok() && budget.claim(u64::MAX).is_err());
    }
}
