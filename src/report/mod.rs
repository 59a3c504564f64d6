//! Plans and runs for people: tables and pictures. No device is needed.

mod estimate;
mod json;
mod kept;
mod page;
mod palette;
mod picture;
mod scene;
mod tensors;

pub use estimate::Estimate;
pub use json::Json;
pub use kept::{Kept, kept};
pub use page::page;
pub use picture::{Panel, picture};
pub use tensors::{TensorReport, tensors};
