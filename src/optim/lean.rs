//! Optimizers with less state than Adam's eight bytes for each parameter.

use std::panic::Location;

use crate::graph::{Op, Reduction, Tensor, Trace, Update};
use crate::shape::Shape;

/// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"): steps of equal size in every
/// coordinate. One number of state for each parameter. Usual are a learning rate three to ten times smaller
/// than Adam's and a weight decay larger by the same factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁, of the interpolation that gives the step, and β₂, of the moving average that is stored.
    pub betas: (f32, f32),
    /// λ: weights shrink by `1 - ηλ` each step.
    pub weight_decay: f32,
}

impl Default for Lion {
    /// The authors': η = 0.0001, β = (0.9, 0.99), no decay.
    fn default() -> Self {
        Self { lr: 1e-4, betas: (0.9, 0.99), weight_decay: 0.0 }
    }
}

/// Adafactor (Shazeer & Stern 2018): `torch.optim.Adafactor`. A matrix stores its second moment as one number
/// for each row and each column. Convolution weights count as matrices of their last two dimensions, as in
/// PyTorch; vectors store the full second moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adafactor {
    /// η: the relative step size is the smaller of η and `1/√t`.
    pub lr: f32,
    /// Exponent c of `1 - β₂ = t^c`, below 0.
    pub beta2_decay: f32,
    /// ε₁, the lower bound of the second moment, and ε₂, the lower bound of the size of the weights.
    pub eps: (f32, f32),
    /// d: updates are scaled down so that their root mean square is at most this.
    pub clip: f32,
    /// λ: weights shrink by `1 - ηλ` each step.
    pub weight_decay: f32,
}

impl Default for Adafactor {
    /// PyTorch's: η = 0.01, c = -0.8, ε = (2⁻²³, 0.001), d = 1, no decay.
    fn default() -> Self {
        Self { lr: 1e-2, beta2_decay: -0.8, eps: (f32::EPSILON, 1e-3), clip: 1.0, weight_decay: 0.0 }
    }
}

impl Adafactor {
    pub(super) const fn update(&self) -> Update {
        Update::Adafactor { eps: self.eps.1, clip: self.clip, weight_decay: self.weight_decay }
    }

    /// Builds the tensors that the update reads in addition to `w` and `scalars`: the update `u`, and the
    /// sums of `u²` and `w²`.
    pub(super) fn operands(
        &self,
        trace: &Trace,
        name: &str,
        weight: &Tensor,
        gradient: &Tensor,
        scalars: &Tensor,
    ) -> [Tensor; 3] {
        let average = |state: &str, x: &Tensor, scale: f32| {
            let state = trace.state(&format!("{name}.{state}"), x.shape());
            state.one(Op::MovingAverage { scale, share: None }, &[&state, x, scalars], Location::caller())
        };
        let rank = weight.shape().rank();
        let variance = if rank >= 2 {
            let along = |axis: usize, state: &str| {
                let squares = gradient.reduce_keep(Reduction::SumSquares, &[axis]);
                average(state, &squares, 1.0 / weight.dim(axis) as f32)
            };
            let (rows, columns) = (along(rank - 1, "row_var"), along(rank - 2, "col_var"));
            let mean = rows.reduce_keep(Reduction::Mean, &[rank - 2]).clamp(self.eps.0, f32::MAX);
            rows.div(&mean).mul(&columns)
        } else {
            average("variance", &gradient.square(), 1.0)
        };
        let update = variance.clamp(self.eps.0 * self.eps.0, f32::MAX).sqrt().recip().mul(gradient);
        let sum = |x: &Tensor| x.reduce_keep(Reduction::SumSquares, &[]).reshape([]);
        let (u2, w2) = (sum(&update), sum(weight));
        [update, u2, w2]
    }
}

/// Adam-mini (Zhang et al. 2024, "Adam-mini: Use Fewer Learning Rates To Gain More"): AdamW with one second moment for each
/// row of a weight, the mean of the row's squares. A row is what one index of the first dimension selects: the weights of an
/// output of [`Linear`](crate::nn::Linear), a channel of a convolution, a token of an embedding; a vector is one row.
/// (The paper has one number for each head of queries and keys; here heads have one for each row.) Four bytes of state for
/// each parameter and four for each row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamMini {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε
    pub eps: f32,
    /// λ: weights shrink by `1 - ηλ` each step.
    pub weight_decay: f32,
}

impl Default for AdamMini {
    /// As [`AdamW`](super::AdamW): η = 0.001, β = (0.9, 0.999), ε = 1e-8, λ = 0.01.
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2 }
    }
}

impl AdamMini {
    /// Number of rows of a parameter.
    pub(super) fn rows(shape: Shape) -> usize {
        if shape.rank() < 2 { 1 } else { shape.dims()[0] }
    }

    /// Builds this step's second moment of each row from its state.
    pub(super) fn second_moment(&self, state: &Tensor, gradient: &Tensor, scalars: &Tensor) -> Tensor {
        let (rank, rows) = (gradient.shape().rank(), state.shape().numel());
        let axes: Vec<usize> = if rank < 2 { (0..rank).collect() } else { (1..rank).collect() };
        let squares = gradient.reduce_keep(Reduction::SumSquares, &axes).reshape(state.shape());
        let scale = rows as f32 / gradient.shape().numel() as f32;
        let op = Op::MovingAverage { scale, share: Some(1.0 - self.betas.1) };
        state.one(op, &[state, &squares, scalars], Location::caller())
    }
}

/// AdamW with both moments in eight bits: blocks of 256 elements share a scale, and the 256 representable
/// numbers are denser near zero (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"; the
/// map and the block size of bitsandbytes). State takes 2 1/32 bytes for each parameter; tensors of fewer
/// than 4,096 elements keep 32 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam8bit {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε
    pub eps: f32,
    /// λ: weights shrink by `1 - ηλ` each step.
    pub weight_decay: f32,
}

impl Default for Adam8bit {
    /// As [`AdamW`](super::AdamW): η = 0.001, β = (0.9, 0.999), ε = 1e-8, λ = 0.01.
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2 }
    }
}

impl Adam8bit {
    /// Tensors with fewer elements keep their moments in 32 bits.
    pub const SMALLEST: u64 = 4096;
}

/// AdamW with both moments in four bits: blocks of 128 elements share a scale; the first moment is the nearest of 16
/// numbers that are denser near zero, the second of the multiples of 1/16 from there to 1, so that no step is divided by 0
/// (Li et al. 2023, "Memory Efficient Optimizers with 4-bit States"; blocks for both moments, as in torchao's `AdamW4bit`).
/// State takes 1 1/16 bytes for each parameter; tensors of fewer than [`Adam8bit::SMALLEST`] elements keep 32 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam4bit {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε
    pub eps: f32,
    /// λ: weights shrink by `1 - ηλ` each step.
    pub weight_decay: f32,
}

impl Default for Adam4bit {
    /// As [`AdamW`](super::AdamW): η = 0.001, β = (0.9, 0.999), ε = 1e-8, λ = 0.01.
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2 }
    }
}
