//! Low-rank adapters.

use crate::graph::{Init, LoraConfig, Param, Params, Tensor};

/// A low-rank adapter of a layer (LoRA, Hu et al. 2021), with PEFT's names: `lora_A.weight` starts as PyTorch's linear
/// layers do, `lora_B.weight` as zeros, so that the layer begins as it was.
///
/// [`Params::adapt`] gives one to every [`Linear`](super::Linear) that it names. For layers of your own, register one with
/// [`Lora::new`] and add it in the forward pass.
#[derive(Clone, Debug)]
pub struct Lora {
    /// `[rank, in]`
    pub a: Param,
    /// `[out, rank]`
    pub b: Param,
    scale: f32,
    dropout: f64,
}

impl Lora {
    /// Registers `lora_A.weight` and `lora_B.weight` at the path of `params`, the layer's. `targets` of the config are not
    /// read.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize, config: &LoraConfig) -> Self {
        let a = params.scope("lora_A").add_adapter([config.rank, inputs], Init::fan_in(inputs), config);
        let b = params.scope("lora_B").add_adapter([outputs, config.rank], Init::Constant(0.0), config);
        Self { a, b, scale: config.scale(), dropout: config.dropout }
    }

    /// Registers the adapter that [`Params::adapt`] asks for at the path of `params`, if it does.
    #[track_caller]
    pub(crate) fn of(params: &Params, inputs: usize, outputs: usize) -> Option<Self> {
        params.adapter().map(|config| Self::new(params, inputs, outputs, &config))
    }

    /// Returns `y + (alpha / rank) B A dropout(x)`, for the result `y [.., out]` of the layer on `x [.., in]`.
    #[track_caller]
    #[must_use]
    pub fn add(&self, y: &Tensor, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        let low = x.dropout(self.dropout).matmul_transposed(&trace.param(&self.a), false, true);
        y.add(&low.scale(self.scale).matmul_transposed(&trace.param(&self.b), false, true))
    }
}
