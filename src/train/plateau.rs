//! Learning rates that fall when a metric stops improving.

use super::Best;
use crate::error::{Error, Result};

/// Multiplies the learning rate by a factor when the task's metric has stopped improving, by the rules of
/// PyTorch's `ReduceLROnPlateau` with a relative threshold. A [`Schedule`](crate::optim::Schedule) multiplies
/// the rate as well. What was seen so far is saved with the run and continues with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReduceOnPlateau {
    /// Which metric is the best.
    pub best: Best,
    /// Factor of each reduction, above 0 and below 1.
    pub factor: f64,
    /// Epochs without improvement that are tolerated: the next one reduces the rate.
    pub patience: u64,
    /// Share of the best metric by which a better one must exceed it, at least 0.
    pub threshold: f64,
    /// Epochs after a reduction that do not count.
    pub cooldown: u64,
    /// The lowest product of all reductions, at least 0 (`min_lr / lr`).
    pub floor: f64,
}

impl ReduceOnPlateau {
    /// Returns PyTorch's settings: a tenth after more than 10 epochs without an improvement of 0.0001, no
    /// cooldown, no floor.
    pub const fn new(best: Best) -> Self {
        Self { best, factor: 0.1, patience: 10, threshold: 1e-4, cooldown: 0, floor: 0.0 }
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |name: &str, value: f64, rule: &str| {
            let message = format!("plateau: {name} = {value}; it must be {rule}");
            Err(Error::setting(format!("plateau.{name}"), message))
        };
        let Self { factor, threshold, floor, .. } = *self;
        if !(factor > 0.0 && factor < 1.0) {
            return wrong("factor", factor, "above 0 and below 1");
        }
        if !(0.0..f64::INFINITY).contains(&threshold) {
            return wrong("threshold", threshold, "at least 0 and finite");
        }
        if !(0.0..=1.0).contains(&floor) {
            return wrong("floor", floor, "from 0 to 1");
        }
        Ok(())
    }

    /// Returns the state after an epoch with this metric.
    pub(super) fn after(&self, value: f64, mut state: Plateau) -> Plateau {
        if self.best.is_better(value, state.best, self.threshold) {
            (state.best, state.waited) = (Some(value), 0);
        } else {
            state.waited += 1;
        }
        if state.cooldown > 0 {
            (state.cooldown, state.waited) = (state.cooldown - 1, 0);
        }
        if state.waited > self.patience {
            state.factor = (state.factor * self.factor).max(self.floor);
            (state.cooldown, state.waited) = (self.cooldown, 0);
        }
        state
    }
}

/// What [`ReduceOnPlateau`] has seen and done in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plateau {
    /// The best metric so far.
    best: Option<f64>,
    /// Epochs since then, or since the last reduction.
    waited: u64,
    /// Epochs that will not count.
    cooldown: u64,
    /// The product of all reductions.
    pub(super) factor: f64,
}

impl Default for Plateau {
    fn default() -> Self {
        Self { best: None, waited: 0, cooldown: 0, factor: 1.0 }
    }
}

#[cfg(feature = "safetensors")]
impl Plateau {
    /// Returns the state as a note in a file: four words.
    pub(super) fn note(&self) -> String {
        let best = self.best.map_or("none".to_owned(), |best| best.to_string());
        format!("{best} {} {} {}", self.waited, self.cooldown, self.factor)
    }

    /// Reads a note; `None` if it is not one.
    pub(super) fn of_note(note: &str) -> Option<Self> {
        let words: Vec<&str> = note.split(' ').collect();
        let [best, waited, cooldown, factor] = words[..] else { return None };
        let best = if best == "none" { None } else { Some(best.parse().ok()?) };
        let (waited, cooldown, factor) = (waited.parse().ok()?, cooldown.parse().ok()?, factor.parse().ok()?);
        Some(Self { best, waited, cooldown, factor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the factor after each epoch with these metrics.
    fn factors(plateau: &ReduceOnPlateau, metrics: &[f64]) -> Vec<f64> {
        let mut state = Plateau::default();
        let mut after = |value: f64| {
            state = plateau.after(value, state);
            #[cfg(feature = "safetensors")]
            assert_eq!(Plateau::of_note(&state.note()), Some(state));
            state.factor
        };
        metrics.iter().map(|metric| after(*metric)).collect()
    }

    #[test]
    fn factors_of_plateaus_match_counts_by_hand() {
        let base = ReduceOnPlateau { factor: 0.5, patience: 1, ..ReduceOnPlateau::new(Best::Lowest) };
        // One epoch without improvement is tolerated, the second reduces.
        let plain = factors(&base, &[1.0, 0.9, 0.9, 0.95, 0.9, 0.9, f64::NAN]);
        assert_eq!(plain, [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25]);
        // The epoch after a reduction does not count.
        let cooling = ReduceOnPlateau { cooldown: 1, ..base };
        assert_eq!(factors(&cooling, &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), [1.0, 1.0, 0.5, 0.5, 0.5, 0.25]);
        let highest =
            ReduceOnPlateau { best: Best::Highest, patience: 0, threshold: 0.1, floor: 0.3, ..base };
        assert_eq!(factors(&highest, &[0.5, 0.6, 0.65, 0.67, 0.1]), [1.0, 1.0, 0.5, 0.5, 0.3]);
    }

    #[test]
    fn settings_of_plateaus_out_of_range_are_refused_by_name() {
        let base = ReduceOnPlateau::new(Best::Highest);
        assert!(base.check().is_ok());
        for (settings, name) in [
            (ReduceOnPlateau { factor: 1.0, ..base }, "factor"),
            (ReduceOnPlateau { threshold: f64::NAN, ..base }, "threshold"),
            (ReduceOnPlateau { floor: 2.0, ..base }, "floor"),
        ] {
            let error = settings.check().expect_err(name).to_string();
            assert!(error.starts_with(&format!("plateau: {name} = ")), "{error}");
        }
    }
}
