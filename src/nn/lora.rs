//! Low-rank adapters.

use std::sync::Arc;

use crate::graph::{Adapter, Init, LoraConfig, Param, Params, Tensor};

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
        let adapter = Adapter { config: Arc::new(config.clone()), base: None, input_first: false };
        Self::with(params, inputs, outputs, &adapter)
    }

    /// Registers the adapter that [`Params::adapt`] asks for of `weight`, of the layer at the path of `params`, if it does.
    #[track_caller]
    pub(crate) fn of(params: &Params, weight: &Param, input_first: bool) -> Option<Self> {
        let [first, second] = [0, 1].map(|axis| weight.shape().dims()[axis]);
        let [inputs, outputs] = if input_first { [first, second] } else { [second, first] };
        let base = Some(weight.name().to_owned());
        let adapter = Adapter { config: params.adapter()?, base, input_first };
        Some(Self::with(params, inputs, outputs, &adapter))
    }

    #[track_caller]
    fn with(params: &Params, inputs: usize, outputs: usize, adapter: &Adapter) -> Self {
        let LoraConfig { rank, dropout, .. } = *adapter.config;
        let add = |name, shape, init| params.scope(name).add_adapter(shape, init, adapter.clone());
        Self {
            a: add("lora_A", [rank, inputs], Init::fan_in(inputs)),
            b: add("lora_B", [outputs, rank], Init::Constant(0.0)),
            scale: adapter.config.scale(),
            dropout,
        }
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
