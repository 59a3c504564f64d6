//! Dynamic loss scaling, controlled on the device.

/// Scales the gradient of the loss so that small gradients do not underflow in formats with a small exponent
/// range. The rules are those of PyTorch's `GradScaler`: a step in which any gradient is infinite or NaN is
/// skipped and halves the scale; `interval` consecutive steps without overflow double it. The update sees
/// unscaled gradients; the scale is a power of two, so unscaling is exact.
///
/// All gradients are alive at once: no update may run before the last gradient is checked for overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// The first scale, a power of two.
    pub start: f32,
    /// Consecutive steps without overflow before the scale is doubled.
    pub interval: u32,
}

impl Default for LossScale {
    /// Starts at 2¹⁶, doubled after 2,000 steps without overflow.
    fn default() -> Self {
        Self { start: 65_536.0, interval: 2000 }
    }
}

/// Which of the step scalars depend on the step count, and so have to leave out skipped steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counting {
    /// None.
    Nothing,
    /// Adam's bias corrections, with β₁ and β₂.
    Adam(f32, f32),
    /// NAdam's, with β₁, β₂ and ψ, the decay of its momentum.
    NAdam(f32, f32, f32),
    /// RAdam's, with β₁ and β₂.
    RAdam(f32, f32),
    /// Adagrad's divisor of the learning rate, with its growth in a step.
    Adagrad(f32),
    /// Adafactor's share of the newest gradient and its step size, with the exponent of the share.
    Adafactor(f32),
}

impl Counting {
    /// Returns `bias1`, `sqrt_bias2` and `gradient_share` of [`StepScalars`](crate::graph::StepScalars) for step
    /// `t`, the first being 1, with learning rate `rate`.
    pub(crate) fn corrections(self, t: f64, rate: f64) -> [f64; 3] {
        let left = |beta: f32| 1.0 - f64::from(beta).powf(t);
        match self {
            Self::Nothing => [1.0, 1.0, 0.0],
            Self::Adam(beta1, beta2) => [left(beta1), left(beta2).sqrt(), 0.0],
            Self::NAdam(beta1, beta2, decay) => {
                let (product, next) = (momentum_product(beta1, decay, t), momentum(beta1, decay, t + 1.0));
                let share = (1.0 - momentum(beta1, decay, t)) / (1.0 - product);
                // With β₁ = 0 the first moment has no part in the step.
                let bias1 = ((1.0 - product * next) / next).min(1e30);
                [bias1, left(beta2).sqrt(), share]
            }
            Self::RAdam(beta1, beta2) => {
                let most = 2.0 / (1.0 - f64::from(beta2)) - 1.0;
                let length = most - 2.0 * t * (1.0 - left(beta2)) / left(beta2);
                if length <= 5.0 {
                    return [left(beta1), 0.0, 0.0];
                }
                let part = |length: f64| (length - 4.0) * (length - 2.0) / length;
                [left(beta1) / (part(length) / part(most) * left(beta2)).sqrt(), 1.0, 0.0]
            }
            Self::Adagrad(growth) => [1.0 + (t - 1.0) * f64::from(growth), 1.0, 0.0],
            Self::Adafactor(exponent) => [t.powf(f64::from(exponent)), rate.min(t.sqrt().recip()), 0.0],
        }
    }
}

/// NAdam's momentum of step `t`.
fn momentum(beta1: f32, decay: f32, t: f64) -> f64 {
    f64::from(beta1) * (1.0 - 0.5 * 0.96f64.powf(t * f64::from(decay)))
}

/// The product of NAdam's momenta of steps 1 to `t`, from `ln (1 - qⁱ/2) = -Σ q^(ik) / (k 2ᵏ)`, whose sums over
/// the steps are geometric.
fn momentum_product(beta1: f32, decay: f32, t: f64) -> f64 {
    let ln_q = 0.96f64.ln() * f64::from(decay);
    let term = |k: f64| {
        let sum = if ln_q == 0.0 { t } else { (t * k * ln_q).exp_m1() / (k * ln_q).exp_m1() };
        0.5f64.powf(k) / k * (k * ln_q).exp() * sum
    };
    let logarithm: f64 = (1..=40).map(|k| term(f64::from(k))).sum();
    f64::from(beta1).powf(t) * (-logarithm).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn momenta_of_nadam_multiply_to_their_product() {
        for (beta1, decay) in [(0.9, 4e-3), (0.99, 0.0), (0.5, 2.0), (0.0, 4e-3)] {
            let mut product = 1.0;
            for t in 1..=200 {
                product *= momentum(beta1, decay, f64::from(t));
                let found = momentum_product(beta1, decay, f64::from(t));
                assert!(
                    (found - product).abs() <= 1e-9 * product,
                    "{beta1}, {decay}: {found}, not {product}"
                );
            }
        }
    }
}
