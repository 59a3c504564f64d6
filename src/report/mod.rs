//! Plans and runs for people: tables and pictures. No device is needed.

mod estimate;
mod kept;
mod picture;
mod tensors;

pub use estimate::Estimate;
pub use kept::{Kept, kept, kept_bytes};
pub use picture::picture;
pub use tensors::{TensorReport, tensors};
