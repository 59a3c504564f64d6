//! Callbacks of a training run.

use std::time::Duration;

use super::Trainer;
use crate::error::{Error, Result};
use crate::exec::Refit;
use crate::report::Failure;

/// Progress of a run after a step.
#[derive(Clone, Copy, Debug)]
pub struct StepProgress {
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Epochs of the whole run.
    pub epochs: u64,
    /// Steps made in this epoch.
    pub step: usize,
    /// Steps in an epoch.
    pub steps: usize,
    /// The last loss that has arrived in this epoch; `None` before the first.
    pub loss: Option<f32>,
    /// The task's metric in the last evaluation; `None` before the first.
    pub metric: Option<Metric>,
    /// Samples per second since the first step; 0 after the first step.
    pub samples_per_s: f64,
    /// Estimated time for the rest of the run at this rate.
    pub eta: Duration,
    /// Bytes created on the device, or on the fullest of several, which are all that a step uses.
    pub device_bytes: u64,
    /// The share of the time since the first step in which this rank waited for others; `None` on one device.
    pub waiting: Option<f64>,
}

/// The end of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Mean of the losses that arrived in it.
    pub loss: f32,
    /// The task's metric on the evaluation data; `None` without evaluation data.
    pub metric: Option<Metric>,
}

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Name of the metric, such as `accuracy`.
    pub name: &'static str,
    /// Mean over the samples of the evaluation data.
    pub value: f64,
}

/// Watches a run, and may end it by returning an error.
pub trait Callback {
    /// Called when [`Trainer::fit`](super::Trainer::fit) starts, before the first step.
    ///
    /// # Errors
    /// Whatever should keep the run from starting, such as a path that cannot be written.
    fn on_start(&mut self, _trainer: &mut Trainer) -> Result<()> {
        Ok(())
    }

    /// Called after each step.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn on_step(&mut self, _progress: &StepProgress) -> Result<()> {
        Ok(())
    }

    /// Called after each epoch and its evaluation. [`Trainer::finish`](super::Trainer::finish) makes it the last.
    ///
    /// # Errors
    /// Whatever should end the run.
    fn on_epoch(&mut self, _epoch: &Epoch, _trainer: &mut Trainer) -> Result<()> {
        Ok(())
    }

    /// Called after the trainer switched to other plans because memory ran out or because a limit was set:
    /// see [`OnOom::Refit`](crate::exec::OnOom::Refit) and
    /// [`Trainer::refit_within`](super::Trainer::refit_within).
    ///
    /// # Errors
    /// Whatever should end the run.
    fn on_refit(&mut self, _refit: &Refit, _trainer: &mut Trainer) -> Result<()> {
        Ok(())
    }

    /// Called when the run ends with an error, before [`Callback::on_end`].
    fn on_error(&mut self, _error: &Error, _trainer: &mut Trainer) {}

    /// Called by [`Trainer::watched`](super::Trainer::watched) when a run cannot start, with the error and
    /// what is known about it.
    fn on_refused(&mut self, _error: &Error, _known: &Failure) {}

    /// Called when the run is over, with an error or without.
    fn on_end(&mut self) {}
}
