//! Check of the guard gaps between tensors, which no kernel may overwrite.

use super::poison::POISON;
use super::transfer::Place;
use super::{ProgramId, Session};
use crate::error::{Error, Result};
use crate::maybe_async;

impl Session {
    /// Checks that no kernel of the last run wrote between tensors. The plan must have been made with
    /// [`PlanOptions::guard`](crate::compile::PlanOptions::guard), the session with
    /// [`Debug::poison`](super::Debug).
    ///
    /// # Errors
    /// [`Error::Check`] with the tensor past whose end something was written; [`Error::PlanMismatch`] if there are
    /// no guards.
    #[maybe_async]
    pub async fn check_guards(&mut self, id: ProgramId) -> Result<()> {
        let plan = self.plan(id)?.clone();
        if plan.layout.guard_bytes == 0 || !self.is_poisoned() {
            let message = "guards need a plan with `guard: true` and a session with `poison: true`";
            return Err(Error::PlanMismatch(message.to_owned()));
        }
        for (storage, region) in plan.program.storages.iter().zip(&plan.layout.regions) {
            if storage.persistent {
                continue;
            }
            let buffer = self.arenas.step[region.arena.index as usize].clone();
            let offset = region.offset + storage.bytes;
            let words =
                self.read_words(Place { buffer: &buffer, offset, bytes: plan.layout.guard_bytes }).await?;
            if let Some(at) = words.iter().position(|&word| word != POISON) {
                let (name, found) = (&storage.name, words[at]);
                return Err(Error::Check(format!("{found:#x} was written {} bytes after `{name}`", at * 4)));
            }
        }
        Ok(())
    }
}
