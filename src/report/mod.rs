//! Plans and runs for people: tables. No device is needed.

mod estimate;
mod tensors;

pub use estimate::Estimate;
pub use tensors::{TensorReport, tensors};
