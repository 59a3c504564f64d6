//! Muon: orthogonal steps for matrices.

use std::panic::Location;

use super::AdamW;
use crate::graph::{Op, Reduction, Tensor, Trace, Update};

/// Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"), `torch.optim.Muon`: the momentum of a
/// matrix is replaced by the nearest matrix with orthogonal rows or columns, by five steps of Newton and Schulz. Four bytes
/// of state for each parameter. Parameters of more than two dimensions, such as convolution weights, are matrices
/// `[first dimension, all others]`.
///
/// Vectors, tables read by [`Tensor::embedding`], and groups with [`ParamGroup::orthogonal`] off, which the last layer should be
/// in, are updated by AdamW with `adamw_rate` times η and the same λ.
///
/// [`PlanOptions::offload`](crate::compile::PlanOptions::offload) moves the state of AdamW, not the momentum of matrices.
///
/// PyTorch computes the steps of Newton and Schulz in bf16; these are products of the plan as others: in `f32`, or where
/// [`Precision::F16`](crate::dtype::Precision::F16) has them, on cooperative matrices.
///
/// [`ParamGroup::orthogonal`]: crate::graph::ParamGroup::orthogonal
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// η, the learning rate.
    pub lr: f32,
    /// μ, of the moving average `m = μm + (1 - μ)g`.
    pub momentum: f32,
    /// Nesterov's variant: `(1 - μ)g + μm` in place of `m`.
    pub nesterov: bool,
    /// λ: weights shrink by `1 - ηλ` each step.
    pub weight_decay: f32,
    /// Scales steps by `0.2 √max(rows, columns)`, so that their size is that of AdamW's and its learning rates fit (Liu et al.
    /// 2025; PyTorch's `adjust_lr_fn="match_rms_adamw"`), in place of `√max(1, rows / columns)`.
    pub match_rms: bool,
    /// Factor of η for parameters that AdamW updates; with `match_rms` usually 1.
    pub adamw_rate: f32,
    /// AdamW's β₁ and β₂.
    pub betas: (f32, f32),
    /// AdamW's ε.
    pub eps: f32,
}

impl Default for Muon {
    /// The author's: η = 0.02, μ = 0.95 with Nesterov's variant, no decay, and AdamW with η 0.0003, β = (0.9, 0.95), ε = 1e-10.
    fn default() -> Self {
        let (betas, eps) = ((0.9, 0.95), 1e-10);
        let (lr, adamw_rate) = (0.02, 0.015);
        Self {
            lr,
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.0,
            match_rms: false,
            adamw_rate,
            betas,
            eps,
        }
    }
}

impl Muon {
    /// Coefficients of `aX + (bA + cA²)X` with `A = XXᵀ`, chosen by the author for the slope at 0.
    const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];
    /// Steps of Newton and Schulz.
    const STEPS: usize = 5;
    /// The smallest norm that is divided by, as in PyTorch.
    const SMALLEST_NORM: f32 = 1e-7;

    /// Returns what updates the parameters that are not orthogonalized.
    pub(super) const fn for_others(&self) -> AdamW {
        let Self { lr, betas, eps, weight_decay, .. } = *self;
        AdamW { lr, betas, eps, weight_decay, amsgrad: false }
    }

    /// `w -= η (g + λw)` is `w = (1 - ηλ)w - ηg`.
    pub(super) const fn update(&self) -> Update {
        Update::Sgd { weight_decay: self.weight_decay, corrected: false }
    }

    /// Builds the step from the gradient, of the weight's shape.
    pub(super) fn step(&self, trace: &Trace, name: &str, gradient: &Tensor, scalars: &Tensor) -> Tensor {
        let (shape, here) = (gradient.shape(), Location::caller());
        let state = trace.state(&format!("{name}.momentum_buffer"), shape);
        let op = Op::MovingAverage { scale: 1.0, share: Some(1.0 - self.momentum) };
        let mut step = state.one(op, &[&state, gradient, scalars], here);
        if self.nesterov {
            step = step.scale(self.momentum).add(&gradient.scale(1.0 - self.momentum));
        }
        let (rows, columns) = shape.as_matrix();
        let ratio = if self.match_rms {
            0.04 * rows.max(columns) as f64
        } else {
            (rows as f64 / columns as f64).max(1.0)
        };
        orthogonal(&step.reshape([rows, columns])).scale(ratio.sqrt() as f32).reshape(shape)
    }
}

/// Returns the matrix with the singular vectors of `x` and singular values near 1.
fn orthogonal(x: &Tensor) -> Tensor {
    let norm = x.reduce_keep(Reduction::SumSquares, &[0, 1]).sqrt().clamp(Muon::SMALLEST_NORM, f32::MAX);
    let mut x = x.div(&norm);
    let [a, b, c] = Muon::COEFFICIENTS;
    // The smaller of XXᵀ and XᵀX has the same polynomial.
    let wide = x.dim(0) <= x.dim(1);
    for _ in 0..Muon::STEPS {
        let gram = x.matmul_transposed(&x, !wide, wide);
        let change = gram.matmul(&gram).scale(c).add(&gram.scale(b));
        let moved = if wide { change.matmul(&x) } else { x.matmul(&change) };
        x = moved.add(&x.scale(a));
    }
    x
}
