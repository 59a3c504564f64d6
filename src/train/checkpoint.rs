//! Saving parameters as training goes on.

use std::path::PathBuf;

use super::{Callback, Epoch};
use crate::error::Result;
use crate::exec::Session;

/// Saves parameters and optimizer state to one file after every `every` epochs. A run that stops keeps what it saved.
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
            session.save(&self.path, true)?;
        }
        Ok(())
    }
}
