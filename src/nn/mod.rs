//! Layers as plain structs over [`Params`](crate::graph::Params), with the names and layouts of PyTorch.

mod conv;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod row_norm;

pub use conv::{Conv2d, ConvTranspose2d};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use linear::Linear;
pub use norm::{BatchNorm2d, GroupNorm};
pub use row_norm::{LayerNorm, RmsNorm};

use crate::graph::Tensor;

/// A layer or network: maps one tensor to another.
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
