//! Optimizers that divide each gradient by a root of its squares, other than Adam.

/// RMSprop (Hinton 2012): `torch.optim.RMSprop`, not centered. One number of state for each parameter, with
/// momentum two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// η, the learning rate.
    pub lr: f32,
    /// α, of the moving average of squares.
    pub alpha: f32,
    /// ε, added to the root.
    pub eps: f32,
    /// μ, of the divided gradients; with 0 there is no second state.
    pub momentum: f32,
    /// λ, the L2 penalty.
    pub weight_decay: f32,
}

impl Default for RmsProp {
    /// PyTorch's: η = 0.01, α = 0.99, ε = 1e-8, no momentum, no penalty.
    fn default() -> Self {
        Self { lr: 1e-2, alpha: 0.99, eps: 1e-8, momentum: 0.0, weight_decay: 0.0 }
    }
}

/// Adagrad (Duchi et al. 2011): `torch.optim.Adagrad`. One number of state for each parameter, the sum of all
/// squares, which starts at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// η, the learning rate.
    pub lr: f32,
    /// The rate of step t, the first being 1, is `η / (1 + (t - 1) lr_decay)`.
    pub lr_decay: f32,
    /// ε, added to the root.
    pub eps: f32,
    /// λ, the L2 penalty.
    pub weight_decay: f32,
}

impl Default for Adagrad {
    /// PyTorch's: η = 0.01, no decay of the rate, ε = 1e-10, no penalty.
    fn default() -> Self {
        Self { lr: 1e-2, lr_decay: 0.0, eps: 1e-10, weight_decay: 0.0 }
    }
}

/// Adam with Nesterov's momentum (Dozat 2016): `torch.optim.NAdam`. Two numbers of state for each parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NAdam {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε
    pub eps: f32,
    /// ψ: the momentum of step t is `β₁ (1 - 0.96^(tψ) / 2)`.
    pub momentum_decay: f32,
    /// λ, the L2 penalty, or with `decoupled` a decay as that of [`AdamW`](super::AdamW).
    pub weight_decay: f32,
    /// Weights shrink by `1 - ηλ` each step, and gradients have no penalty.
    pub decoupled: bool,
}

impl Default for NAdam {
    /// PyTorch's: η = 0.002, β = (0.9, 0.999), ε = 1e-8, ψ = 0.004, no penalty.
    fn default() -> Self {
        let (betas, momentum_decay) = ((0.9, 0.999), 4e-3);
        Self { lr: 2e-3, betas, eps: 1e-8, momentum_decay, weight_decay: 0.0, decoupled: false }
    }
}

/// Adam whose first steps have no adaptive rates, because their variance is large (Liu et al. 2020):
/// `torch.optim.RAdam`. Two numbers of state for each parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RAdam {
    /// η, the learning rate.
    pub lr: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε
    pub eps: f32,
    /// λ, the L2 penalty, or with `decoupled` a decay as that of [`AdamW`](super::AdamW).
    pub weight_decay: f32,
    /// Weights shrink by `1 - ηλ` each step, and gradients have no penalty.
    pub decoupled: bool,
}

impl Default for RAdam {
    /// PyTorch's: η = 0.001, β = (0.9, 0.999), ε = 1e-8, no penalty.
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, decoupled: false }
    }
}
