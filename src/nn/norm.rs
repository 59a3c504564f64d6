//! Normalisation layers for images.

use super::Module;
use crate::graph::{Init, Mode, Param, Params, RunningStats, Tensor};

/// `torch.nn.BatchNorm2d` (Ioffe & Szegedy 2015): uses the statistics of the batch in training and the
/// running ones in evaluation. `weight [c]` is initialized to 1, `bias [c]` to 0; `running_mean` and
/// `running_var` are saved with them.
#[derive(Clone, Debug)]
pub struct BatchNorm2d {
    path: String,
    /// ε, 1e-5 unless changed.
    pub eps: f32,
    /// Weight of the batch's statistics in the update of the running ones, 0.1 unless changed.
    pub momentum: f32,
    /// γ
    pub weight: Param,
    /// β
    pub bias: Param,
    /// Running mean.
    pub running_mean: Param,
    /// Running variance, unbiased.
    pub running_var: Param,
}

impl BatchNorm2d {
    /// Registers γ, β and the running statistics at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, channels: usize) -> Self {
        Self {
            path: params.path().to_owned(),
            eps: 1e-5,
            momentum: 0.1,
            weight: params.add("weight", [channels], Init::Constant(1.0)),
            bias: params.add("bias", [channels], Init::Constant(0.0)),
            running_mean: params.add_buffer("running_mean", [channels], Init::Constant(0.0)),
            running_var: params.add_buffer("running_var", [channels], Init::Constant(1.0)),
        }
    }
}

impl Module for BatchNorm2d {
    /// `x [n, c, h, w]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            let [gamma, beta, mean, var] =
                [&self.weight, &self.bias, &self.running_mean, &self.running_var].map(|p| trace.param(p));
            match trace.mode() {
                Mode::Eval => x.batch_norm_eval(&gamma, &beta, &mean, &var, self.eps),
                Mode::Train => {
                    let running = RunningStats { mean: &mean, var: &var, momentum: self.momentum };
                    x.batch_norm_train(&gamma, &beta, self.eps, Some(&running))
                }
            }
        })
    }
}

/// `torch.nn.GroupNorm` (Wu & He 2018): `weight [c]` is initialized to 1, `bias [c]` to 0.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    path: String,
    groups: usize,
    /// ε, 1e-5 unless changed.
    pub eps: f32,
    /// γ
    pub weight: Param,
    /// β
    pub bias: Param,
}

impl GroupNorm {
    /// Registers γ and β at the path of `params`.
    #[track_caller]
    pub fn new(params: &Params, groups: usize, channels: usize) -> Self {
        let weight = params.add("weight", [channels], Init::Constant(1.0));
        let bias = params.add("bias", [channels], Init::Constant(0.0));
        Self { path: params.path().to_owned(), groups, eps: 1e-5, weight, bias }
    }
}

impl Module for GroupNorm {
    /// `x [n, c, h, w]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            x.group_norm(self.groups, &trace.param(&self.weight), &trace.param(&self.bias), self.eps)
        })
    }
}
