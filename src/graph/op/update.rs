//! What an optimizer does to one parameter.

/// An optimizer's update of one parameter, in place. `g` is the gradient, `w` the parameter, `η` the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Update {
    /// `g += λw`; `w -= η g`. Inputs: `w, g, scalars`.
    Sgd {
        /// λ, the L2 penalty.
        weight_decay: f32,
    },
    /// `g += λw`; `v = μv + g`; `w -= η v` (Nesterov: `w -= η (g + μv)`), as `torch.optim.SGD`.
    /// Inputs: `w, g, scalars, v`.
    Momentum {
        /// μ
        momentum: f32,
        /// λ, the L2 penalty.
        weight_decay: f32,
        /// Look ahead by one momentum step.
        nesterov: bool,
    },
    /// Adam (Kingma & Ba 2015) as `torch.optim.Adam`; with `decoupled` decay AdamW (Loshchilov & Hutter 2019).
    /// `m = β₁m + (1-β₁)g`; `v = β₂v + (1-β₂)g²`; `w -= η/(1-β₁ᵗ) · m / (√v/√(1-β₂ᵗ) + ε)`.
    /// Inputs: `w, g, scalars, m, v`.
    Adam {
        /// β₁
        beta1: f32,
        /// β₂
        beta2: f32,
        /// ε
        eps: f32,
        /// λ
        weight_decay: f32,
        /// `w *= 1 - ηλ` first, instead of `g += λw`.
        decoupled: bool,
    },
}
