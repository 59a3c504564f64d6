//! Saving of a run, and going on from what was saved.

use std::path::Path;

use super::Trainer;
use super::resume::{self, Found, Rates};
use crate::error::Result;
use crate::exec::{Destination, LoadOptions, Origin, SaveOptions, notes_of};
use crate::maybe_async;

impl Trainer {
    /// Saves parameters, optimizer state, the number of steps made, and notes on data, batch, options and
    /// version; [`Trainer::load`] continues from the file. Of several ranks, rank 0 writes it and the others do nothing.
    ///
    /// # Errors
    /// As [`Session::save`](crate::exec::Session::save).
    #[maybe_async]
    pub async fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.save_to(Destination::Path(path.as_ref(), &[]), &SaveOptions::training_state()).await
    }

    /// [`Trainer::save`] into host memory, with options such as [`SaveOptions::training_state`] and notes of your own: returns
    /// the bytes of the file, on rank 0.
    ///
    /// # Errors
    /// As [`Session::save_bytes`](crate::exec::Session::save_bytes).
    #[maybe_async]
    pub async fn save_bytes(&mut self, options: &SaveOptions) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.save_to(Destination::Memory(&mut bytes), options).await?;
        Ok(bytes)
    }

    /// [`Trainer::save`] with options.
    #[maybe_async]
    pub(super) async fn save_to(&mut self, to: Destination<'_>, options: &SaveOptions) -> Result<()> {
        if self.rank() > 0 && !self.session.is_sharded(true) {
            return Ok(());
        }
        let mut options = options.clone();
        let found = Found { best: self.best, plateau: self.plateau, waited: self.waited };
        options.notes.extend(resume::notes(&self.loader, self.recipe.options(), self.rates(), found));
        self.session.save_to(to, &options).await
    }

    /// Continues from a file that [`Trainer::save`] or a [`Checkpoint`](super::Checkpoint) wrote:
    /// [`Trainer::fit`] continues after the steps of that run, bit for bit if task, data, batch and options
    /// are the same. Options that differ, such as the learning rate, are logged as warnings.
    ///
    /// # Errors
    /// As [`Session::load`](crate::exec::Session::load); [`Error::Weights`](crate::Error::Weights) if the number of samples, the batch or the seed of their order
    /// differ, because steps count the samples drawn. Nothing is loaded then.
    #[maybe_async]
    pub async fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_from(Origin::Path(path.as_ref())).await
    }

    /// [`Trainer::load`] from the contents of a file in host memory; `name` is its name, for errors.
    ///
    /// # Errors
    /// As [`Trainer::load`].
    #[maybe_async]
    pub async fn load_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.load_from(Origin::Memory(Path::new(name), bytes)).await
    }

    #[maybe_async]
    async fn load_from(&mut self, from: Origin<'_>) -> Result<()> {
        let (path, notes) = (from.path(), notes_of(from)?);
        let found = resume::compare(path, &notes, &self.loader, self.recipe.options(), self.rates())?;
        self.session.load_from(from, &LoadOptions::default()).await?;
        (self.best, self.waited) = (found.best, found.waited);
        self.set_plateau(found.plateau);
        Ok(())
    }

    fn rates(&self) -> Rates {
        Rates { schedule: self.schedule.clone(), plateau: self.reduces }
    }
}
