//! Gradient clipping, by value or by global norm.

use crate::error::{Error, Result};
use crate::graph::{Reduction, Tensor, ValueId};

/// What happens to gradients before the update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Clip {
    /// Nothing.
    #[default]
    Off,
    /// Each element to ±this (`clip_grad_value_`).
    Value(f32),
    /// All gradients scaled so that the norm of all elements together is at most this (`clip_grad_norm_`). It needs
    /// every gradient at once, so none can be freed by its own update before the last exists.
    Norm(f32),
}

impl Clip {
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Value(limit) | Self::Norm(limit) if limit.is_nan() || limit <= 0.0 => {
                Err(Error::Option(format!("gradients cannot be clipped to {limit}; it must be above 0")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn append(self, gradients: Vec<(ValueId, Tensor)>) -> Vec<(ValueId, Tensor)> {
        match self {
            Self::Off => gradients,
            Self::Value(limit) => gradients.into_iter().map(|(id, g)| (id, g.clamp(-limit, limit))).collect(),
            Self::Norm(limit) => {
                let sum_of_squares = |g: &Tensor| g.reduce_keep(Reduction::SumSquares, &[]).reshape([]);
                let Some(total) =
                    gradients.iter().map(|(_, g)| sum_of_squares(g)).reduce(|sum, part| sum.add(&part))
                else {
                    return gradients;
                };
                // PyTorch's: min(1, limit / (norm + 1e-6))
                let factor = total.sqrt().offset(1e-6).recip().scale(limit).clamp(0.0, 1.0);
                gradients.into_iter().map(|(id, g)| (id, g.mul(&factor))).collect()
            }
        }
    }
}
