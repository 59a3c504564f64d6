//! Learning-rate schedules: a factor for each step.

use std::f64::consts::PI;

/// The factor of the learning rate at each step. Plans do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Schedule {
    /// Always 1.
    #[default]
    Constant,
    /// Multiplies by `gamma` after every `every` steps (`StepLR`).
    Step {
        /// Steps between drops.
        every: u64,
        /// Factor of each drop.
        gamma: f32,
    },
    /// Rises linearly over `warmup` steps, then falls along half a cosine to `floor` at step `total`
    /// (`CosineAnnealingLR` after a `LinearLR`).
    Cosine {
        /// Number of warm-up steps.
        warmup: u64,
        /// Step at which the floor is reached.
        total: u64,
        /// Lowest factor.
        floor: f32,
    },
    /// Rises linearly over `warmup` steps, then falls linearly to 0 at step `total`.
    Linear {
        /// Number of warm-up steps.
        warmup: u64,
        /// Step at which 0 is reached.
        total: u64,
    },
}

impl Schedule {
    /// Returns the factor at step `step` (0 is the first).
    pub fn factor(&self, step: u64) -> f32 {
        // The first of n warm-up steps has the factor 1/n, the last 1.
        let rise = |warmup: u64| (step < warmup).then(|| (step + 1) as f64 / warmup as f64);
        let done = |warmup: u64, total: u64| {
            let span = total.saturating_sub(warmup).max(1) as f64;
            (step.saturating_sub(warmup) as f64 / span).min(1.0)
        };
        let factor = match *self {
            Self::Constant => 1.0,
            Self::Step { every, gamma } => f64::from(gamma).powf((step / every.max(1)) as f64),
            Self::Cosine { warmup, total, floor } => rise(warmup).unwrap_or_else(|| {
                let floor = f64::from(floor);
                floor + (1.0 - floor) * 0.5 * (1.0 + (PI * done(warmup, total)).cos())
            }),
            Self::Linear { warmup, total } => rise(warmup).unwrap_or_else(|| 1.0 - done(warmup, total)),
        };
        factor as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_match_at_the_ends_and_in_between() {
        let cosine = Schedule::Cosine { warmup: 10, total: 110, floor: 0.1 };
        let linear = Schedule::Linear { warmup: 0, total: 100 };
        let steps = Schedule::Step { every: 30, gamma: 0.1 };
        let cases = [
            (Schedule::Constant, 7, 1.0),
            (cosine, 0, 0.1),
            (cosine, 9, 1.0),
            (cosine, 60, 0.55),
            (cosine, 110, 0.1),
            (cosine, 9999, 0.1),
            (linear, 25, 0.75),
            (linear, 200, 0.0),
            (steps, 29, 1.0),
            (steps, 60, 0.01),
        ];
        for (schedule, step, expected) in cases {
            let factor = schedule.factor(step);
            assert!((factor - expected).abs() < 1e-6, "{schedule:?} at {step}: {factor}, not {expected}");
        }
    }
}
