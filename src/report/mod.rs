//! Plans and runs for people: tables and pictures. No device is needed.

mod estimate;
mod kept;
mod page;
mod palette;
mod picture;
mod scene;
mod summary;
mod table;
mod tensors;

pub use estimate::{Estimate, HEADROOM};
pub use kept::{Kept, kept, kept_bytes};
pub use page::page;
pub use picture::{Panel, picture};
pub use summary::{LayerSummary, Summary};
pub use tensors::{TensorReport, tensors};
