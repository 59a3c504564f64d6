//! Training loops: epochs over a data set, evaluation, checkpoints, progress.

mod best;
mod callback;
#[cfg(feature = "safetensors")]
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
mod stop;
mod task;
mod tensorboard;
mod trainer;

pub use best::Best;
pub use callback::{Callback, Epoch, Metric, StepProgress};
#[cfg(feature = "safetensors")]
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
