//! Data sets and batches. Nothing here touches a device.

mod batch;
mod characters;
mod cifar;
#[cfg(any(feature = "csv", feature = "parquet"))]
mod columns;
#[cfg(feature = "csv")]
mod csv;
mod documents;
mod from_fn;
#[cfg(feature = "images")]
mod images;
mod loader;
#[cfg(feature = "parquet")]
mod parquet;
mod prefetch;
mod stream;
mod subset;
mod table;
mod token_file;
mod tokens;

pub use batch::{Batch, Values};
pub use characters::Characters;
pub use cifar::cifar10;
#[cfg(any(feature = "csv", feature = "parquet"))]
pub use columns::{Columns, Missing};
pub use documents::Documents;
pub use from_fn::{FromFn, from_fn};
#[cfg(feature = "images")]
pub use images::{Augment, Channels, Crop, ImageFolder, ImageOptions, RandomCrop};
pub use loader::{LastBatch, Loader};
pub use prefetch::Prefetch;
#[cfg(feature = "gpu")]
pub(crate) use prefetch::ahead;
pub use stream::{Stream, stream};
pub use subset::Subset;
pub use table::Table;
pub use token_file::TokenFormat;
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

    /// Returns a batch of these samples to train on in epoch number `epoch`: what a [`Loader`] asks for. Data
    /// sets that vary their samples from epoch to epoch do it here, determined by the epoch and the index of
    /// the sample, so that a run that continues gets the same; [`Dataset::batch`], which others use as is, is
    /// also what evaluations get.
    ///
    /// # Errors
    /// As [`Dataset::batch`].
    fn training_batch(&self, _epoch: u64, samples: &[usize]) -> Result<Batch> {
        self.batch(samples)
    }
}
