//! Saving of parameters during training.

use std::path::PathBuf;

use super::{Callback, Epoch, Trainer};
use crate::error::{Error, Result};

/// Saves parameters and optimizer state to one file after every `every` epochs. The file stays when a run
/// stops, and [`Trainer::load`] continues from it. A run that stops because memory ran out saves its current state.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The safetensors file.
    pub path: PathBuf,
    /// Epochs between two saves.
    pub every: u64,
}

impl Callback for Checkpoint {
    fn on_epoch(&mut self, epoch: &Epoch, trainer: &mut Trainer) -> Result<()> {
        if (epoch.epoch + 1).is_multiple_of(self.every.max(1)) {
            trainer.save(&self.path)?;
        }
        Ok(())
    }

    fn on_error(&mut self, error: &Error, trainer: &mut Trainer) {
        if !error.is_out_of_memory() && !matches!(error, Error::OverBudget { .. }) {
            return;
        }
        match trainer.save(&self.path) {
            Ok(()) => log::warn!("parameters and optimizer state are in {}", self.path.display()),
            Err(failed) => log::error!("parameters and optimizer state cannot be saved: {failed}"),
        }
    }
}
