//! Training loops: epochs over a data set, evaluation, checkpoints, progress.

mod best;
mod callback;
#[cfg(all(feature = "safetensors", not(target_family = "wasm")))]
mod checkpoint;
mod early_stopping;
mod failure;
mod meter;
mod metrics;
mod monitor;
mod plateau;
mod progress;
mod recipe;
#[cfg(feature = "safetensors")]
mod resume;
#[cfg(feature = "safetensors")]
mod saving;
mod stop;
mod task;
mod tensorboard;
mod trainer;

pub use best::Best;
pub use callback::{Callback, Epoch, Metric, StepProgress};
#[cfg(all(feature = "safetensors", not(target_family = "wasm")))]
pub use checkpoint::Checkpoint;
pub use early_stopping::EarlyStopping;
pub use meter::Meter;
pub use metrics::Metrics;
pub use monitor::{Alert, Monitor, MonitorOptions};
pub use plateau::ReduceOnPlateau;
pub use progress::ProgressLine;
pub use stop::Stop;
pub use task::Task;
pub use trainer::{TrainOptions, Trainer};
