//! Saving of parameters during training.

use std::path::PathBuf;

use super::{Callback, Epoch};
use crate::error::{Error, Result};
use crate::exec::SaveOptions;
use crate::exec::Session;

/// Saves parameters and optimizer state to one file after every `every` epochs. The file stays when a run
/// stops. A run that stops because memory ran out saves its current state.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The safetensors file.
    pub path: PathBuf,
    /// Epochs between two saves.
    pub every: u64,
}

impl Callback for Checkpoint {
    fn on_epoch(&mut self, epoch: &Epoch, session: &mut Session) -> Result<()> {
        if (epoch.epoch + 1).is_multiple_of(self.every.max(1)) {
            session.save_with(&self.path, &SaveOptions::training_state())?;
        }
        Ok(())
    }

    fn on_error(&mut self, error: &Error, session: &mut Session) {
        if !error.is_out_of_memory() && !matches!(error, Error::OverBudget { .. }) {
            return;
        }
        match session.save_with(&self.path, &SaveOptions::training_state()) {
            Ok(()) => log::warn!("parameters and optimizer state are in {}", self.path.display()),
            Err(failed) => log::error!("parameters and optimizer state cannot be saved: {failed}"),
        }
    }
}
