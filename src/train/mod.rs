//! Training loops: epochs over a data set, evaluation, checkpoints, progress.

mod callback;
#[cfg(feature = "safetensors")]
mod checkpoint;
mod progress;
mod trainer;

pub use callback::{Callback, Epoch, StepProgress};
#[cfg(feature = "safetensors")]
pub use checkpoint::Checkpoint;
pub use progress::ProgressLine;
pub use trainer::{Classifier, TrainOptions, Trainer};
