//! Optimizers as graph builders: each appends its updates to a differentiated graph.

mod clip;
mod schedule;

use std::panic::Location;

pub use clip::Clip;
pub use schedule::Schedule;

use crate::autodiff::Gradients;
use crate::error::{Error, Result};
use crate::graph::{Op, Phase, StepScalars, Tensor, Trace, Update};

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

/// Adam (Kingma & Ba 2015): `torch.optim.Adam`. Two numbers of state for each parameter.
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
}

impl Default for Adam {
    /// PyTorch's: η = 0.001, β = (0.9, 0.999), ε = 1e-8, no penalty.
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0 }
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
}

impl Default for AdamW {
    /// PyTorch's: η = 0.001, β = (0.9, 0.999), ε = 1e-8, λ = 0.01.
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2 }
    }
}

/// Which update parameters get, and with what learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// [`Sgd`]
    Sgd(Sgd),
    /// [`Adam`]
    Adam(Adam),
    /// [`AdamW`]
    AdamW(AdamW),
}

impl Default for Optimizer {
    /// [`AdamW`] with PyTorch's defaults.
    fn default() -> Self {
        Self::AdamW(AdamW::default())
    }
}

impl From<Sgd> for Optimizer {
    fn from(sgd: Sgd) -> Self {
        Self::Sgd(sgd)
    }
}

impl From<Adam> for Optimizer {
    fn from(adam: Adam) -> Self {
        Self::Adam(adam)
    }
}

impl From<AdamW> for Optimizer {
    fn from(adamw: AdamW) -> Self {
        Self::AdamW(adamw)
    }
}

impl Optimizer {
    /// The names that [`Optimizer::named`] knows.
    pub const NAMES: [&'static str; 4] = ["sgd", "momentum", "adam", "adamw"];

    /// An optimizer with default settings, by name; `momentum` is SGD with μ = 0.9.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "sgd" => Sgd::default().into(),
            "momentum" => Sgd { momentum: 0.9, ..Sgd::default() }.into(),
            "adam" => Adam::default().into(),
            "adamw" => AdamW::default().into(),
            _ => {
                let known = Self::NAMES.map(str::to_owned).to_vec();
                return Err(Error::Unknown { kind: "optimizer", name: name.to_owned(), known });
            }
        })
    }

    /// η before any schedule.
    pub fn learning_rate(&self) -> f32 {
        match self {
            Self::Sgd(sgd) => sgd.lr,
            Self::Adam(adam) => adam.lr,
            Self::AdamW(adamw) => adamw.lr,
        }
    }

    /// Optimizers with less state at the same rate, by name.
    pub fn lighter(&self) -> Vec<(&'static str, Self)> {
        let momentum = |lr, weight_decay| Sgd { lr, momentum: 0.9, weight_decay, ..Sgd::default() };
        let without = |sgd: Sgd| Self::Sgd(Sgd { momentum: 0.0, nesterov: false, ..sgd });
        match *self {
            Self::Sgd(sgd) if sgd.momentum == 0.0 => Vec::new(),
            Self::Sgd(sgd) => vec![("sgd", without(sgd))],
            Self::Adam(Adam { lr, weight_decay, .. }) | Self::AdamW(AdamW { lr, weight_decay, .. }) => {
                let momentum = momentum(lr, weight_decay);
                vec![("momentum", momentum.into()), ("sgd", without(momentum))]
            }
        }
    }

    /// What the device needs to know at step `step` (0 is the first) with learning rate `lr`.
    pub fn scalars(&self, step: u64, lr: f32, seed: u64) -> StepScalars {
        let (beta1, beta2) = match self {
            Self::Sgd(_) => (0.0, 0.0),
            Self::Adam(Adam { betas, .. }) | Self::AdamW(AdamW { betas, .. }) => *betas,
        };
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(step as f64 + 1.0);
        StepScalars {
            learning_rate: lr,
            bias1: correction(beta1) as f32,
            sqrt_bias2: correction(beta2).sqrt() as f32,
            step: step as u32,
            seed_low: seed as u32,
            seed_high: (seed >> 32) as u32,
            reserved: [0; 2],
        }
    }

    /// Appends clipping and one update for each parameter that has a gradient.
    ///
    /// # Errors
    /// [`Error::Option`] if a setting is out of its range.
    pub fn append(&self, trace: &Trace, gradients: Gradients, clip: Clip) -> Result<()> {
        self.check()?;
        clip.check()?;
        trace.phase(Phase::Update, || {
            let clipped = clip.append(gradients.pairs);
            let scalars = trace.step_scalars();
            for (id, gradient) in clipped {
                let (name, weight) = (trace.name_of(id), trace.tensor(id));
                let states =
                    self.states().iter().map(|s| trace.state(&format!("{name}.{s}"), weight.shape()));
                let states: Vec<Tensor> = states.collect();
                let mut inputs = vec![&weight, &gradient, &scalars];
                inputs.extend(&states);
                let layer = name.rsplit_once('.').map_or("", |(layer, _)| layer);
                trace.layer(layer, || trace.emit(Op::Update(self.update()), &inputs, Location::caller()));
            }
        });
        Ok(())
    }

    /// Names of the state beside each parameter, as PyTorch's state dictionaries have them.
    fn states(&self) -> &'static [&'static str] {
        match self {
            Self::Sgd(sgd) if sgd.momentum == 0.0 => &[],
            Self::Sgd(_) => &["momentum_buffer"],
            Self::Adam(_) | Self::AdamW(_) => &["exp_avg", "exp_avg_sq"],
        }
    }

    fn update(&self) -> Update {
        match *self {
            Self::Sgd(Sgd { momentum: 0.0, weight_decay, .. }) => Update::Sgd { weight_decay },
            Self::Sgd(Sgd { momentum, weight_decay, nesterov, .. }) => {
                Update::Momentum { momentum, weight_decay, nesterov }
            }
            Self::Adam(Adam { betas: (beta1, beta2), eps, weight_decay, .. }) => {
                Update::Adam { beta1, beta2, eps, weight_decay, decoupled: false }
            }
            Self::AdamW(AdamW { betas: (beta1, beta2), eps, weight_decay, .. }) => {
                Update::Adam { beta1, beta2, eps, weight_decay, decoupled: true }
            }
        }
    }

    fn check(&self) -> Result<()> {
        let mut rules = vec![("lr", self.learning_rate(), f32::MAX)];
        match self {
            Self::Sgd(sgd) => {
                rules.extend([("momentum", sgd.momentum, 1.0), ("weight_decay", sgd.weight_decay, f32::MAX)]);
            }
            Self::Adam(Adam { betas, eps, weight_decay, .. })
            | Self::AdamW(AdamW { betas, eps, weight_decay, .. }) => rules.extend([
                ("beta1", betas.0, 1.0),
                ("beta2", betas.1, 1.0),
                ("eps", *eps, f32::MAX),
                ("weight_decay", *weight_decay, f32::MAX),
            ]),
        }
        match rules.into_iter().find(|(_, value, below)| !(*value >= 0.0 && value < below)) {
            Some((name, value, below)) => {
                let most = if below == 1.0 { "below 1" } else { "finite" };
                Err(Error::Option(format!("optimizer: {name} = {value}; it must be at least 0 and {most}")))
            }
            None => Ok(()),
        }
    }
}
