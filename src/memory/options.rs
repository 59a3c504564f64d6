//! How a pool behaves.

use super::{Growth, Kind};

/// How a pool behaves. `PoolOptions::default()` is the pool of the eager executor: bins, doubling from 4 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Which strategy places blocks.
    pub strategy: Kind,
    /// Smallest unit in bytes, a power of two: offsets and sizes are multiples of it. 256 suits storage bindings.
    pub granule: u64,
    /// How large new pages are.
    pub growth: Growth,
    /// Largest page in bytes: the device's largest buffer, or largest binding where blocks must be bound whole.
    pub max_page: u64,
    /// Bytes of pages made at once, before the first request; 0 makes none.
    pub prealloc: u64,
    /// Most bytes of all pages together; `None`: no limit but the device.
    pub cap: Option<u64>,
    /// Release a page as soon as nothing lives in it, instead of keeping it for later.
    pub release_idle: bool,
    /// How many events to keep; 0 keeps none.
    pub events: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            strategy: Kind::Bins,
            granule: 256,
            growth: Growth::Doubling(4 << 20),
            max_page: (2 << 30) - 256,
            prealloc: 0,
            cap: None,
            release_idle: false,
            events: 0,
        }
    }
}

impl PoolOptions {
    /// A buffer of its own for every tensor, gone when the tensor is.
    pub fn one_buffer_per_tensor() -> Self {
        Self { strategy: Kind::Whole, growth: Growth::Exact, release_idle: true, ..Self::default() }
    }

    /// The rules of PyTorch's caching allocator with its defaults; segments of any size.
    pub fn pytorch() -> Self {
        let max_page = u64::MAX / 2;
        Self { strategy: Kind::Caching, granule: 512, growth: Growth::Segments, max_page, ..Self::default() }
    }
}
