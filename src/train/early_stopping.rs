//! Ending a run that no longer improves.

use super::{Best, Callback, Epoch, Trainer};
use crate::error::{Error, Result};

/// Ends a run after epochs without an improvement: [`Trainer::fit`] then returns the last epoch, as if it had been
/// asked for so many. Watches the task's metric on the evaluation data; without evaluation data, the mean loss
/// of the epochs.
///
/// The best value and the epochs since are state of the trainer, which a [`Checkpoint`](super::Checkpoint) after
/// it in the list of callbacks saves: a run that continues from a file stops where it would have. A later `fit`
/// of a run that has ended starts counting again.
///
/// ```
/// # use wgrad::train::EarlyStopping;
/// let stopping = EarlyStopping { patience: 3, min_delta: 0.001, ..EarlyStopping::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStopping {
    /// Number of epochs without an improvement after which the run ends.
    pub patience: u64,
    /// By how much a value must be better than the best to be an improvement.
    pub min_delta: f64,
    /// Which metric is better. A loss is better if it is lower, whatever this is.
    pub best: Best,
}

impl Default for EarlyStopping {
    /// Five epochs in which the metric is not higher than before.
    fn default() -> Self {
        Self { patience: 5, min_delta: 0.0, best: Best::Highest }
    }
}

/// The best value so far and the number of epochs since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Waited {
    pub(super) best: f64,
    pub(super) epochs: u64,
}

impl EarlyStopping {
    /// Returns the state after an epoch.
    fn after(&self, before: Option<Waited>, value: f64, best: Best) -> Waited {
        let needed = before.map(|before| match best {
            Best::Highest => before.best + self.min_delta,
            Best::Lowest => before.best - self.min_delta,
        });
        match before {
            Some(before) if !best.is_better(value, needed, 0.0) => {
                Waited { epochs: before.epochs + 1, ..before }
            }
            None if value.is_nan() => {
                let worst = if best == Best::Highest { f64::NEG_INFINITY } else { f64::INFINITY };
                Waited { best: worst, epochs: 1 }
            }
            _ => Waited { best: value, epochs: 0 },
        }
    }
}

impl Callback for EarlyStopping {
    fn on_start(&mut self, trainer: &mut Trainer) -> Result<()> {
        if self.patience == 0 || !(self.min_delta >= 0.0 && self.min_delta.is_finite()) {
            let Self { patience, min_delta, .. } = self;
            let message = format!(
                "early stopping with patience {patience} and min_delta {min_delta}: patience must be at least 1, min_delta at \
                 least 0 and finite"
            );
            return Err(Error::setting("early_stopping", message));
        }
        if trainer.waited.is_some_and(|waited| waited.epochs >= self.patience) {
            trainer.waited = None;
        }
        Ok(())
    }

    fn on_epoch(&mut self, epoch: &Epoch, trainer: &mut Trainer) -> Result<()> {
        let (value, best) = match epoch.metric {
            Some(metric) => (metric.value, self.best),
            None => (f64::from(epoch.loss), Best::Lowest),
        };
        let waited = self.after(trainer.waited, value, best);
        trainer.waited = Some(waited);
        if waited.epochs >= self.patience {
            log::info!("no improvement on {} in {} epochs: the run ends", waited.best, waited.epochs);
            trainer.finish();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_improvements_beyond_the_least_change_count() {
        let stopping = EarlyStopping { min_delta: 0.1, ..EarlyStopping::default() };
        for (best, values) in [
            (Best::Highest, [0.5, 0.55, 0.61, 0.7, f64::NAN]),
            (Best::Lowest, [-0.5, -0.55, -0.61, -0.7, f64::NAN]),
        ] {
            let mut waited = None;
            let epochs = values.map(|value| {
                waited = Some(stopping.after(waited, value, best));
                waited.map(|waited| waited.epochs)
            });
            assert_eq!(epochs.map(Option::unwrap), [0, 1, 0, 1, 2]);
            let never = stopping.after(None, f64::NAN, best);
            assert_eq!((never.epochs, stopping.after(Some(never), 1.0, best).epochs), (1, 0));
        }
    }
}
