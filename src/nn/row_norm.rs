//! Normalisation layers over rows, the last axis.

use super::Module;
use crate::graph::{Init, Param, Params, Tensor};

/// `torch.nn.LayerNorm` over the last axis (Ba et al. 2016): initializes `weight [d]` to 1 and `bias [d]` to
/// zeros.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    path: String,
    /// ε, 1e-5 unless changed.
    pub eps: f32,
    /// γ
    pub weight: Param,
    /// β
    pub bias: Param,
}

impl LayerNorm {
    /// Registers γ and β at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, columns: usize) -> Self {
        let weight = params.add("weight", [columns], Init::Constant(1.0));
        let bias = params.add("bias", [columns], Init::Constant(0.0));
        Self { path: params.path().to_owned(), eps: 1e-5, weight, bias }
    }
}

impl Module for LayerNorm {
    /// `x [.., d]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            x.layer_norm(&trace.param(&self.weight), &trace.param(&self.bias), self.eps)
        })
    }
}

/// RMS norm over the last axis (Zhang & Sennrich 2019), as in Llama: `weight [d]` is initialized to 1.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    path: String,
    /// ε, 1e-6 unless changed.
    pub eps: f32,
    /// γ, less `offset`.
    pub weight: Param,
    /// Added to the weight.
    offset: f32,
}

impl RmsNorm {
    /// Registers γ at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, columns: usize) -> Self {
        Self::with_offset(params, columns, 0.0)
    }

    /// Registers γ - `offset` at the path of `params`, for networks that store it so, such as Gemma with an offset of 1. γ
    /// is 1 initially.
    #[track_caller]
    pub fn with_offset(params: &Params, columns: usize, offset: f32) -> Self {
        let weight = params.add("weight", [columns], Init::Constant(1.0 - offset));
        Self { path: params.path().to_owned(), eps: 1e-6, weight, offset }
    }
}

impl Module for RmsNorm {
    /// `x [.., d]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            let weight = trace.param(&self.weight);
            let gamma = if self.offset == 0.0 { weight } else { weight.offset(self.offset) };
            x.rms_norm(&gamma, self.eps)
        })
    }
}
