//! Data sets and batches. Nothing here touches a device.

mod batch;
mod characters;
mod cifar;
mod from_fn;
mod loader;
mod prefetch;
mod subset;
mod table;
mod tokens;

pub use batch::{Batch, Values};
pub use characters::Characters;
pub use cifar::cifar10;
pub use from_fn::{FromFn, from_fn};
pub use loader::{LastBatch, Loader};
pub use prefetch::Prefetch;
pub use subset::Subset;
pub use table::Table;
pub use tokens::{TokenWindows, Tokens};

use crate::error::Result;

/// Samples by index, such as rows of a table, files of a folder or windows of a text.
///
/// ```
/// use wgrad::data::{Batch, Dataset};
///
/// /// Points of a parabola.
/// struct Parabola;
///
/// impl Dataset for Parabola {
///     fn len(&self) -> usize {
///         1000
///     }
///
///     fn batch(&self, samples: &[usize]) -> wgrad::Result<Batch> {
///         let x: Vec<f32> = samples.iter().map(|&i| i as f32 / 1000.0).collect();
///         let y: Vec<f32> = x.iter().map(|x| x * x).collect();
///         Ok(Batch::new(samples.len()).with("x", x).with("y", y))
///     }
/// }
/// ```
pub trait Dataset: Send + Sync {
    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a batch of these samples, in this order. Each index is below [`Dataset::len`].
    ///
    /// # Errors
    /// Whatever makes a sample unavailable; it ends the run.
    fn batch(&self, samples: &[usize]) -> Result<Batch>;
}
