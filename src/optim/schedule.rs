//! Learning-rate schedules: a factor for each step.

use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// The factor of the learning rate at each step, a function of the step alone: a run that continues from a
/// file needs nothing but its step count. Plans do not depend on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Schedule {
    /// Always 1.
    #[default]
    Constant,
    /// Rises linearly over `warmup` steps, then stays at 1.
    Warmup {
        /// Number of warm-up steps.
        warmup: u64,
    },
    /// Multiplies by `gamma` after every `every` steps (`StepLR`).
    Step {
        /// Steps between drops.
        every: u64,
        /// Factor of each drop.
        gamma: f32,
    },
    /// Multiplies by `gamma` at each of these steps (`MultiStepLR`).
    MultiStep {
        /// Steps in any order; one that is listed twice multiplies twice.
        milestones: &'static [u64],
        /// Factor of each drop.
        gamma: f32,
    },
    /// Multiplies by `gamma` after every step (`ExponentialLR`).
    Exponential {
        /// Factor of each step.
        gamma: f32,
    },
    /// Rises along half a cosine from `1 / div` to 1, then falls along another to `1 / (div final_div)` at the
    /// last step (`OneCycleLR`; its `max_lr` is the optimizer's rate here).
    OneCycle {
        /// Number of steps.
        total: u64,
        /// Share of the steps in which it rises, `pct_start`; 0.3 in PyTorch.
        rise: f32,
        /// Divisor of the first factor; 25 in PyTorch.
        div: f32,
        /// Divisor of the last factor in relation to the first; 10⁴ in PyTorch.
        final_div: f32,
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
    /// A function of your own: see [`Schedule::custom`].
    Custom(Custom),
}

/// A factor as a function of the step (`LambdaLR`). Two of the same name count as equal.
#[derive(Clone)]
pub struct Custom {
    name: &'static str,
    factor: Arc<dyn Fn(u64) -> f32 + Send + Sync>,
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Custom").field(&self.name).finish()
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Schedule {
    /// Returns a schedule that calls `factor` with the step, 0 being the first.
    ///
    /// The result must depend on the step alone, because a run that continues from a file calls it with the
    /// steps that are left. `name` is what the file notes; a run that continues with a schedule of another
    /// name logs a warning.
    ///
    /// ```
    /// # use wgrad::optim::Schedule;
    /// let schedule = Schedule::custom("root", |step| 1.0 / (step as f32 + 1.0).sqrt());
    /// assert_eq!(schedule.factor(3), 0.5);
    /// ```
    pub fn custom(name: &'static str, factor: impl Fn(u64) -> f32 + Send + Sync + 'static) -> Self {
        Self::Custom(Custom { name, factor: Arc::new(factor) })
    }

    /// Returns the factor at step `step` (0 is the first).
    pub fn factor(&self, step: u64) -> f32 {
        // The first of n warm-up steps has the factor 1/n, the last 1.
        let rise = |warmup: u64| (step < warmup).then(|| (step + 1) as f64 / warmup as f64);
        let done = |warmup: u64, total: u64| {
            let span = total.saturating_sub(warmup).max(1) as f64;
            (step.saturating_sub(warmup) as f64 / span).min(1.0)
        };
        let between = |from: f64, to: f64, part: f64| to + (from - to) * 0.5 * (1.0 + (PI * part).cos());
        let factor = match *self {
            Self::Constant => 1.0,
            Self::Warmup { warmup } => rise(warmup).unwrap_or(1.0),
            Self::MultiStep { milestones, gamma } => {
                let passed = milestones.iter().filter(|milestone| **milestone <= step).count();
                f64::from(gamma).powf(passed as f64)
            }
            Self::Exponential { gamma } => f64::from(gamma).powf(step as f64),
            Self::OneCycle { total, rise, div, final_div } => {
                let start = f64::from(div).recip();
                let (step, top, last) =
                    (step as f64, f64::from(rise) * total as f64 - 1.0, total as f64 - 1.0);
                if step < top {
                    between(start, 1.0, step / top)
                } else {
                    let part = (step - top) / (last - top).max(f64::MIN_POSITIVE);
                    between(1.0, start / f64::from(final_div), part.min(1.0))
                }
            }
            Self::Custom(Custom { ref factor, .. }) => return factor(step),
            Self::Step { every, gamma } => f64::from(gamma).powf((step / every.max(1)) as f64),
            Self::Cosine { warmup, total, floor } => {
                rise(warmup).unwrap_or_else(|| between(1.0, f64::from(floor), done(warmup, total)))
            }
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
        let milestones = Schedule::MultiStep { milestones: &[10, 20, 20], gamma: 0.5 };
        let exponential = Schedule::Exponential { gamma: 0.9 };
        let (warmup, nothing) = (Schedule::Warmup { warmup: 4 }, Schedule::Warmup { warmup: 0 });
        // PyTorch's OneCycleLR(max_lr=1, total_steps=20): the rate of these steps.
        let cycle = Schedule::OneCycle { total: 20, rise: 0.3, div: 25.0, final_div: 1e4 };
        let short = Schedule::OneCycle { total: 1, rise: 0.3, div: 25.0, final_div: 1e4 };
        let custom = Schedule::custom("halves", |step| 0.5f32.powi(step as i32));
        let cases = [
            (&Schedule::Constant, 7, 1.0),
            (&warmup, 0, 0.25),
            (&warmup, 3, 1.0),
            (&warmup, 100, 1.0),
            (&nothing, 0, 1.0),
            (&milestones, 9, 1.0),
            (&milestones, 10, 0.5),
            (&milestones, 20, 0.125),
            (&exponential, 0, 1.0),
            (&exponential, 3, 0.729),
            (&cycle, 0, 0.04),
            (&cycle, 3, 0.668_328),
            (&cycle, 5, 1.0),
            (&cycle, 12, 0.500_002),
            (&cycle, 19, 4e-6),
            (&cycle, 500, 4e-6),
            (&short, 0, 4e-6),
            (&custom, 2, 0.25),
            (&cosine, 0, 0.1),
            (&cosine, 9, 1.0),
            (&cosine, 60, 0.55),
            (&cosine, 110, 0.1),
            (&cosine, 9999, 0.1),
            (&linear, 25, 0.75),
            (&linear, 200, 0.0),
            (&steps, 29, 1.0),
            (&steps, 60, 0.01),
        ];
        for (schedule, step, expected) in cases {
            let factor = schedule.factor(step);
            assert!((factor - expected).abs() < 1e-6, "{schedule:?} at {step}: {factor}, not {expected}");
        }
    }

    #[test]
    fn custom_schedules_are_known_by_name() {
        let [a, b, c] =
            [("a", 1.0), ("a", 2.0), ("b", 1.0)].map(|(name, f)| Schedule::custom(name, move |_| f));
        assert!(a == b && a != c && a != Schedule::Constant);
        let kept = Arc::new(1.0f32);
        let own = Arc::clone(&kept);
        drop(Schedule::custom("kept", move |_| *own).clone());
        assert_eq!(Arc::strong_count(&kept), 1, "the closure is freed");
        assert_eq!(format!("{a:?}"), "Custom(Custom(\"a\"))");
    }
}
