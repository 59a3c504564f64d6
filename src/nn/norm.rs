//! Normalisation layers over channels.

use super::Module;
use crate::graph::{Init, Mode, Param, Params, RunningStats, Tensor};

/// `torch.nn.BatchNorm1d`: [`BatchNorm2d`] takes operands of any number of dimensions.
pub type BatchNorm1d = BatchNorm2d;
/// `torch.nn.BatchNorm3d`: [`BatchNorm2d`] takes operands of any number of dimensions.
pub type BatchNorm3d = BatchNorm2d;

/// `torch.nn.BatchNorm2d` (Ioffe & Szegedy 2015), and those of other dimensions: uses the statistics of the batch in training and the
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
    /// `x [n, c, ..]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        let whole = x.shape();
        let x = &x.as_channels_of_image();
        let y = trace.layer(&self.path, || {
            let [gamma, beta, mean, var] =
                [&self.weight, &self.bias, &self.running_mean, &self.running_var].map(|p| trace.param(p));
            match trace.mode() {
                Mode::Eval => x.batch_norm_eval(&gamma, &beta, &mean, &var, self.eps),
                Mode::Train => {
                    let running = RunningStats { mean: &mean, var: &var, momentum: self.momentum };
                    x.batch_norm_train(&gamma, &beta, self.eps, Some(&running))
                }
            }
        });
        if y.id().is_some() { y.reshape(whole) } else { y }
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
    /// `x [n, c, ..]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let trace = x.trace().clone();
        trace.layer(&self.path, || {
            x.group_norm(self.groups, &trace.param(&self.weight), &trace.param(&self.bias), self.eps)
        })
    }
}

/// `torch.nn.InstanceNorm2d` and those of other dimensions (Ulyanov et al. 2016): a group norm with a group for each
/// channel.
#[derive(Clone, Debug)]
pub struct InstanceNorm {
    /// ε, 1e-5 unless changed.
    pub eps: f32,
    affine: Option<GroupNorm>,
}

impl InstanceNorm {
    /// Registers γ and β at the path of `params`, as with `affine=True`.
    #[track_caller]
    pub fn new(params: &Params, channels: usize) -> Self {
        let affine = GroupNorm::new(params, channels, channels);
        Self { eps: affine.eps, affine: Some(affine) }
    }

    /// Returns a norm without parameters: PyTorch's default.
    pub fn plain() -> Self {
        Self { eps: 1e-5, affine: None }
    }
}

impl Module for InstanceNorm {
    /// `x [n, c, ..]`, shape unchanged.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        match &self.affine {
            Some(affine) => GroupNorm { eps: self.eps, ..affine.clone() }.forward(x),
            None => {
                let [one, zero] = [1.0, 0.0].map(|value| x.fill_like([x.dim(1)], value));
                x.instance_norm(&one, &zero, self.eps)
            }
        }
    }
}
