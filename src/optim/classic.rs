//! Gradient descent and Adam.

/// Stochastic gradient descent, with momentum if it is not 0: `torch.optim.SGD`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// η, the learning rate.
    pub lr: f32,
    /// μ; with 0 there is no optimizer state.
    pub momentum: f32,
    /// λ, the L2 penalty.
    pub weight_decay: f32,
    /// Nesterov's variant of momentum.
    pub nesterov: bool,
}

impl Default for Sgd {
    /// η = 0.01, everything else off.
    fn default() -> Self {
        Self { lr: 1e-2, momentum: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

/// Adam (Kingma & Ba 2015): `torch.optim.Adam`. Two numbers of state for each parameter, with `amsgrad` three.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε
    pub eps: f32,
    /// λ, the L2 penalty.
    pub weight_decay: f32,
    /// Divide by the root of the largest second moment so far (Reddi et al. 2018).
    pub amsgrad: bool,
}

impl Default for Adam {
    /// PyTorch's: η = 0.001, β = (0.9, 0.999), ε = 1e-8, no penalty.
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, amsgrad: false }
    }
}

/// Adam with decoupled weight decay (Loshchilov & Hutter 2019): `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε
    pub eps: f32,
    /// λ: weights shrink by `1 - ηλ` each step.
    pub weight_decay: f32,
    /// As in [`Adam`].
    pub amsgrad: bool,
}

impl Default for AdamW {
    /// PyTorch's: η = 0.001, β = (0.9, 0.999), ε = 1e-8, λ = 0.01.
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2, amsgrad: false }
    }
}
