//! Options of a pool.

use super::{Growth, Kind};

/// Options of a pool. `PoolOptions::default()` is the pool of the eager executor: bins, with pages that
/// double from 4 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Which strategy places blocks.
    pub strategy: Kind,
    /// Smallest unit in bytes, a power of two: offsets and sizes are multiples of it. 256 satisfies the
    /// alignment of storage bindings.
    pub granule: u64,
    /// How large new pages are.
    pub growth: Growth,
    /// Largest page in bytes: the device's largest buffer, or its largest binding if each block must fit in
    /// one binding.
    pub max_page: u64,
    /// Bytes of pages created with the pool, before the first request; 0 creates none.
    pub prealloc: u64,
    /// Maximum bytes of all pages together; `None` if only the device limits them.
    pub cap: Option<u64>,
    /// Whether a page is released as soon as it has no blocks, instead of being reused later.
    pub release_idle: bool,
    /// Number of recent events to keep; 0 keeps none.
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
    /// Returns options that give every tensor its own buffer, released when the tensor is freed.
    pub fn one_buffer_per_tensor() -> Self {
        Self { strategy: Kind::Whole, growth: Growth::Exact, release_idle: true, ..Self::default() }
    }

    /// Returns options that follow PyTorch's caching allocator with its defaults, with segments of any size.
    pub fn pytorch() -> Self {
        let max_page = u64::MAX / 2;
        Self { strategy: Kind::Caching, granule: 512, growth: Growth::Segments, max_page, ..Self::default() }
    }
}
