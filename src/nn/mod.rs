//! Layers as plain structs over [`Params`](crate::graph::Params), with the names and layouts of PyTorch.

mod conv;
mod dropout;
mod embedding;
mod linear;
mod lora;
mod norm;
mod recurrent;
mod row_norm;
mod sequential;
mod transformer;
mod unrolled;

pub use conv::{
    Conv, Conv1d, Conv2d, Conv3d, ConvTranspose, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
};
pub use dropout::Dropout;
pub use embedding::{Embedding, EmbeddingBag};
pub use linear::Linear;
pub use lora::Lora;
pub use norm::{BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm};
#[cfg(feature = "onnx")]
pub(crate) use recurrent::MAX_PARTS;
pub use recurrent::{Cell, Recurrent, RecurrentConfig, States};
pub use row_norm::{LayerNorm, RmsNorm};
pub use sequential::Sequential;
pub use transformer::{BlockConfig, MultiheadAttention, TransformerDecoderLayer, TransformerEncoderLayer};
#[cfg(feature = "onnx")]
pub(crate) use unrolled::{Activation, Unrolled};

use crate::graph::Tensor;

/// A layer or network: maps one tensor to another.
pub trait Module {
    /// Records the layer's operations on `x`.
    fn forward(&self, x: &Tensor) -> Tensor;
}

/// A function of a tensor is a layer without parameters.
impl<F: Fn(&Tensor) -> Tensor> Module for F {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self(x)
    }
}

impl Tensor {
    /// Applies a layer: `x.apply(&fc1).relu().apply(&fc2)`.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, layer: &impl Module) -> Tensor {
        layer.forward(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Forward, Plan, TrainStep};
    use crate::graph::{Param, Params};
    use crate::models::Model;

    /// Models are built and planned on any thread.
    #[test]
    fn models_and_plans_move_between_threads() {
        fn moves<T: Send + Sync>() {}
        moves::<(Params, Param, Model)>();
        moves::<(Linear, Conv2d, ConvTranspose2d, BatchNorm2d, GroupNorm, LayerNorm, RmsNorm)>();
        moves::<(Embedding, Dropout, Sequential, Recurrent)>();
        moves::<(MultiheadAttention, TransformerEncoderLayer, TransformerDecoderLayer)>();
        moves::<(TrainStep, Forward, Plan)>();
    }
}
