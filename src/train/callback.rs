//! What a training run tells those who watch it.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::exec::{Refit, Session};
use crate::report::Failure;

/// Where a run stands after a step.
#[derive(Clone, Copy, Debug)]
pub struct StepProgress {
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Epochs of the whole run.
    pub epochs: u64,
    /// Steps made in this epoch.
    pub step: usize,
    /// Steps of an epoch.
    pub steps: usize,
    /// The last loss that has arrived; none before the first.
    pub loss: Option<f32>,
    /// Accuracy of the last evaluation, in [0, 1]; none before the first.
    pub accuracy: Option<f64>,
    /// Samples per second since the first step; 0 after it.
    pub samples_per_s: f64,
    /// Time that the rest will take at this rate.
    pub eta: Duration,
    /// Bytes created on the device: a step needs this, no more and no less.
    pub device_bytes: u64,
}

/// The end of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Mean of the losses that arrived in it.
    pub loss: f32,
    /// Accuracy on the evaluation data, in [0, 1], if there are any.
    pub accuracy: Option<f64>,
}

/// Watches a run, and may end it by returning an error.
pub trait Callback {
    /// After each step.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn on_step(&mut self, _progress: &StepProgress) -> Result<()> {
        Ok(())
    }

    /// After each epoch and its evaluation.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn on_epoch(&mut self, _epoch: &Epoch, _session: &mut Session) -> Result<()> {
        Ok(())
    }

    /// After the trainer went on with other plans because memory ran out: see [`OnOom::Refit`](crate::exec::OnOom::Refit).
    ///
    /// # Errors
    /// Whatever should end the run.
    fn on_refit(&mut self, _refit: &Refit, _session: &mut Session) -> Result<()> {
        Ok(())
    }

    /// When the run ends with an error, before [`Callback::on_end`].
    fn on_error(&mut self, _error: &Error, _session: &mut Session) {}

    /// When a run cannot begin, for [`Trainer::watched`](super::Trainer::watched): the error, and what is known of it.
    fn on_refused(&mut self, _error: &Error, _known: &Failure) {}

    /// When the run is over, with an error or without.
    fn on_end(&mut self) {}
}
