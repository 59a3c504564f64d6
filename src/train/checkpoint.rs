//! Saving of parameters during training.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Best, Callback, Epoch, Trainer};
use crate::error::{Error, Result};
use crate::exec::{Destination, SaveOptions};
use crate::files;

/// Saves parameters, optimizer state and what a run needs to continue ([`Trainer::save`]) after epochs. A run
/// that is stopped ([`Stop`](super::Stop)) or whose memory runs out saves its current state.
///
/// Files are replaced whole or not at all. Parameters that are NaN or infinite end the run with
/// [`Error::NotFinite`] and leave the files as they are.
///
/// ```no_run
/// # use wgrad::train::{Best, Checkpoint};
/// let checkpoint = Checkpoint {
///     path: "digits.safetensors".into(),
///     last: 3,
///     best: Some(Best::Highest),
///     ..Checkpoint::default()
/// };
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The safetensors file.
    pub path: PathBuf,
    /// Epochs between two saves.
    pub every: u64,
    /// Number of files that are kept: `digits.safetensors` is the last, `digits.1.safetensors` the one before.
    pub last: usize,
    /// Whether the parameters with the best metric are kept, too, in `digits.best.safetensors`.
    pub best: Option<Best>,
    /// Notes of your own in the files, such as what a program must know to build the model again.
    /// [`read_notes`](crate::exec::read_notes) reads them. The keys `format`, `frozen` and `steps` and
    /// those that begin with `run.` are reserved.
    pub notes: BTreeMap<String, String>,
    /// Leaves out frozen parameters ([`SaveOptions::without_frozen`]): load the file of the model first, then this one.
    pub without_frozen: bool,
}

impl Default for Checkpoint {
    /// `checkpoint.safetensors` after every epoch, without earlier files.
    fn default() -> Self {
        let (path, notes) = ("checkpoint.safetensors".into(), BTreeMap::new());
        Self { path, every: 1, last: 1, best: None, notes, without_frozen: false }
    }
}

impl Checkpoint {
    /// Returns the path of another file of this checkpoint: `digits.safetensors` becomes
    /// `digits.best.safetensors` for the word `best`.
    fn sibling(&self, word: &str) -> PathBuf {
        let extension = self.path.extension().map(|extension| extension.to_string_lossy().into_owned());
        self.path.with_extension(extension.map_or(word.to_owned(), |extension| format!("{word}.{extension}")))
    }

    fn saved(&self) -> SaveOptions {
        let (notes, without_frozen) = (self.notes.clone(), self.without_frozen);
        SaveOptions { notes, without_frozen, ..SaveOptions::training_state() }
    }

    /// Saves; afterwards the earlier files have moved on by one. An error leaves all files as they were.
    fn save(&self, trainer: &mut Trainer) -> Result<()> {
        let earlier: Vec<_> = (1..self.last).map(|age| self.sibling(&age.to_string())).collect();
        trainer.save_to(Destination::Path(&self.path, &earlier), &self.saved())
    }
}

impl Callback for Checkpoint {
    fn on_start(&mut self, _trainer: &mut Trainer) -> Result<()> {
        files::check(&self.path).map_err(|e| Error::Weights {
            path: self.path.clone(),
            message: format!("cannot be written: {e}"),
        })
    }

    fn on_epoch(&mut self, epoch: &Epoch, trainer: &mut Trainer) -> Result<()> {
        if let Some(best) = self.best {
            let Some(metric) = epoch.metric else {
                let message =
                    "`Checkpoint::best` needs a metric: give `Trainer::fit` evaluation data".to_owned();
                return Err(Error::NotReady(message));
            };
            if best.is_better(metric.value, trainer.best, 0.0) {
                // The file holds its own value as the best so far.
                let before = trainer.best.replace(metric.value);
                let saved = trainer.save_to(Destination::Path(&self.sibling("best"), &[]), &self.saved());
                saved.inspect_err(|_| trainer.best = before)?;
            }
        }
        if (epoch.epoch + 1).is_multiple_of(self.every.max(1)) {
            self.save(trainer)?;
        }
        Ok(())
    }

    fn on_error(&mut self, error: &Error, trainer: &mut Trainer) {
        let saves =
            error.is_out_of_memory() || matches!(error, Error::OverBudget { .. } | Error::Stopped { .. });
        if !saves {
            return;
        }
        match self.save(trainer) {
            Ok(()) => log::warn!("parameters and optimizer state are in {}", self.path.display()),
            Err(failed) => log::error!("parameters and optimizer state cannot be saved: {failed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn files_of_a_checkpoint_keep_the_extension() {
        let named = |path: &str| Checkpoint { path: path.into(), ..Checkpoint::default() };
        assert_eq!(named("a/m.safetensors").sibling("best"), Path::new("a/m.best.safetensors"));
        assert_eq!(named("a.b/m").sibling("1"), Path::new("a.b/m.1"));
    }
}
