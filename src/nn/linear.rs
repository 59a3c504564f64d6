//! The affine layer.

use super::{Lora, Module};
use crate::graph::{Init, Param, Params, Tensor};

/// `y = x Wᵀ + b`: `torch.nn.Linear`. `weight [out, in]`, `bias [out]`, both initialized uniform in ±1/√in.
#[derive(Clone, Debug)]
pub struct Linear {
    path: String,
    /// `[out, in]`
    pub weight: Param,
    /// `[out]`
    pub bias: Option<Param>,
    /// What [`Params::adapt`] asked for.
    pub lora: Option<Lora>,
}

impl Linear {
    /// Registers `weight` and `bias` at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, inputs: usize, outputs: usize) -> Self {
        let layer = Self::without_bias(params, inputs, outputs);
        Self { bias: Some(params.add("bias", [outputs], Init::fan_in(inputs))), ..layer }
    }

    /// Registers only `weight`: `y = x Wᵀ`.
    #[track_caller]
    pub fn without_bias(params: &Params, inputs: usize, outputs: usize) -> Self {
        Self::with_weight(params, inputs, outputs, Init::fan_in(inputs))
    }

    /// Registers a `weight` initialized normal with mean 0 and this standard deviation, and a `bias`
    /// initialized to 0, as in transformers.
    #[track_caller]
    pub fn normal(params: &Params, inputs: usize, outputs: usize, std: f32) -> Self {
        let layer = Self::normal_without_bias(params, inputs, outputs, std);
        Self { bias: Some(params.add("bias", [outputs], Init::Constant(0.0))), ..layer }
    }

    /// Registers only a `weight`, initialized normal with mean 0 and this standard deviation.
    #[track_caller]
    pub fn normal_without_bias(params: &Params, inputs: usize, outputs: usize, std: f32) -> Self {
        Self::with_weight(params, inputs, outputs, Init::Normal(std))
    }

    #[track_caller]
    fn with_weight(params: &Params, inputs: usize, outputs: usize, init: Init) -> Self {
        let weight = params.add("weight", [outputs, inputs], init);
        let lora = Lora::of(params, &weight, false);
        Self { path: params.path().to_owned(), weight, bias: None, lora }
    }
}

impl Module for Linear {
    /// `x [.., in] → [.., out]`
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            let weight = trace.param(&self.weight);
            let product = x.matmul_transposed(&weight, false, true);
            let product = match &self.lora {
                Some(lora) => lora.adapt(&product, x, &weight),
                None => product,
            };
            match &self.bias {
                Some(bias) => product.add(&trace.param(bias)),
                None => product,
            }
        })
    }
}
