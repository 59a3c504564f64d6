//! Data sets and batches. Nothing here touches a device.

mod characters;
mod cifar;
mod loader;
mod prefetch;
mod table;
mod tokens;

pub use characters::Characters;
pub use cifar::cifar10;
pub use loader::{Batch, LastBatch, Loader};
pub use prefetch::Prefetch;
pub use table::Table;
pub use tokens::{TokenBatch, Tokens, Windows};

/// Samples of a fixed length with a class each.
pub trait Dataset: Send + Sync {
    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of values in one sample.
    fn sample_len(&self) -> usize;

    /// Returns the number of classes.
    fn classes(&self) -> usize;

    /// Writes sample `index` to `out`, which has room for [`Dataset::sample_len`] values, and returns its
    /// class.
    fn read(&self, index: usize, out: &mut [f32]) -> u32;
}
