//! Plans and runs for people: tables and pictures. No device is needed.

mod estimate;
mod picture;
mod tensors;

pub use estimate::Estimate;
pub use picture::picture;
pub use tensors::{TensorReport, tensors};
