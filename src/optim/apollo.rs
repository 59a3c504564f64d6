//! APOLLO: steps of Adam's size from moments of a random projection.

use std::panic::Location;

use super::AdamW;
use crate::graph::{Op, Reduction, Tensor, Trace, Update};
use crate::random;
use crate::shape::Shape;

/// APOLLO (Zhu et al. 2024, "APOLLO: SGD-like Memory, AdamW-level Performance"): Adam's moments are kept of `R = P G`, a random
/// projection of a matrix's gradient to `rank` rows, and each column of `G` is scaled as Adam scales that of `R`. Of a matrix with
/// more rows than columns, columns are projected and rows are scaled. State is eight bytes for each element of `R`: of a matrix
/// `[4096, 4096]` and rank 256, 1/16 of AdamW's. `P` has random signs over `√rank` (Achlioptas 2003), drawn again every `refresh`
/// steps; the optimizer does not store it. Parameters of more than two dimensions, such as convolution weights, are matrices
/// `[first dimension, all others]`.
///
/// Vectors, tables read by [`Tensor::embedding`], and matrices whose smaller dimension is `rank` or less are updated by AdamW with
/// the same settings.
///
/// The paper also limits how much the norm of a step grows from one to the next; here that is left to
/// [`Clip::Norm`](super::Clip::Norm) and [`Schedule`](super::Schedule). [`PlanOptions::offload`](crate::compile::PlanOptions::offload)
/// moves the state of AdamW, not the moments of matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Apollo {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε
    pub eps: f32,
    /// λ: weights shrink by `1 - ηλ` each step.
    pub weight_decay: f32,
    /// Rows of the projected gradient, at least 1.
    pub rank: u32,
    /// Steps with the same projection, at least 1.
    pub refresh: u32,
    /// One factor for a whole matrix, in place of one for each column or row.
    pub whole: bool,
    /// Multiplies the steps of matrices.
    pub scale: f32,
}

impl Default for Apollo {
    /// The authors': rank 256, 200 steps with a projection; η, β, ε and λ as [`AdamW`]'s.
    fn default() -> Self {
        let AdamW { lr, betas, eps, weight_decay, .. } = AdamW::default();
        Self { lr, betas, eps, weight_decay, rank: 256, refresh: 200, whole: false, scale: 1.0 }
    }
}

impl Apollo {
    /// Returns the authors' APOLLO-Mini: rank 1, one factor for a matrix, times √128.
    pub fn mini() -> Self {
        Self { rank: 1, whole: true, scale: 128f32.sqrt(), ..Self::default() }
    }

    /// The least norm of a column that is divided by, as the authors'.
    const SMALLEST_NORM: f32 = 1e-8;

    /// Returns what updates the parameters that are not projected.
    pub(super) const fn for_others(&self) -> AdamW {
        let Self { lr, betas, eps, weight_decay, .. } = *self;
        AdamW { lr, betas, eps, weight_decay, amsgrad: false }
    }

    /// Whether a parameter of this shape is projected.
    pub(super) fn projects(&self, shape: Shape) -> bool {
        let (rows, columns) = shape.as_matrix();
        shape.rank() >= 2 && rows.min(columns) > self.rank as usize
    }

    /// Moments are corrected where the step is made.
    pub(super) const fn update(&self) -> Update {
        Update::Sgd { weight_decay: self.weight_decay, corrected: true }
    }

    /// Builds the step, before the correction of its moments, from the gradient, of the weight's shape.
    pub(super) fn step(&self, trace: &Trace, name: &str, gradient: &Tensor, scalars: &Tensor) -> Tensor {
        let here = Location::caller();
        let (rows, columns) = gradient.shape().as_matrix();
        let wide = rows <= columns;
        let g = gradient.reshape([rows, columns]);
        // Signs are dropout of ones, 0 or 2, less 1. No dropout of a model has a key with this bit.
        let key = random::key(0, name) as u32 & 0x3fff_ffff | 0x4000_0000;
        let ones = g.fill_like([self.rank as usize, rows.min(columns)], 1.0);
        let draw = Op::Dropout { p: 0.5, key, every: self.refresh };
        let signs = ones.one(draw, &[&ones, &trace.step_scalars()], here).offset(-1.0);
        let signs = signs.scale((f64::from(self.rank).sqrt().recip()) as f32);
        let low = if wide { signs.matmul(&g) } else { g.matmul_transposed(&signs, false, true) };
        let average = |state: &str, x: &Tensor, beta: f32| {
            let state = trace.state(&format!("{name}.{state}"), x.shape());
            state.one(Op::MovingAverage { scale: 1.0, share: Some(1.0 - beta) }, &[&state, x, scalars], here)
        };
        let first = average("exp_avg", &low, self.betas.0);
        let second = average("exp_avg_sq", &low.square(), self.betas.1);
        let step = first.div(&second.sqrt().offset(self.eps));
        let axes: &[usize] = match (self.whole, wide) {
            (true, _) => &[0, 1],
            (false, true) => &[0],
            (false, false) => &[1],
        };
        let norm = |x: &Tensor| x.reduce_keep(Reduction::SumSquares, axes).sqrt();
        let factor = norm(&step).div(&norm(&low).offset(Self::SMALLEST_NORM)).scale(self.scale);
        g.mul(&factor).reshape(gradient.shape())
    }
}
