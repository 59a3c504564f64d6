//! Layers as plain structs over [`Params`](crate::graph::Params). Names and layouts are PyTorch's.

mod conv;
mod dropout;
mod linear;
mod norm;

pub use conv::{Conv2d, ConvTranspose2d};
pub use dropout::Dropout;
pub use linear::Linear;
pub use norm::{BatchNorm2d, GroupNorm};

use crate::graph::Tensor;

/// Something that turns one tensor into another.
pub trait Module {
    /// Records the layer's operations on `x`.
    fn forward(&self, x: &Tensor) -> Tensor;
}

impl Tensor {
    /// Applies a layer: `x.apply(&fc1).relu().apply(&fc2)`.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, layer: &impl Module) -> Tensor {
        layer.forward(self)
    }
}
