//! Other plans for a session that is open: what lives from step to step stays where it is.

use super::compatible;
use super::session::{Debug, Session};
use crate::error::{Error, Result};
use crate::plan::{Footprint, Plan};
use std::sync::Arc;

impl Session {
    /// Goes on with other plans over the same parameters and the same optimizer. Parameters, optimizer state, the count of
    /// steps, schedule and learning rate stay as they are; what belongs to the old plans is given back to the device before
    /// anything is created. Outputs of earlier runs are gone.
    ///
    /// If the device has too little memory for the new plans, the session is left without any: it can be read, saved, and
    /// given others, but not run.
    ///
    /// # Errors
    /// As [`Session::with_plans`], and then nothing has changed unless memory ran out; [`Error::LossNotFinite`] for a loss
    /// that was still on its way.
    ///
    /// [`Error::LossNotFinite`]: crate::Error::LossNotFinite
    pub fn replan(&mut self, plans: &[&Plan]) -> Result<()> {
        let keeper = plans[compatible::keeper(plans, self.device())?];
        compatible::same_lasting(&self.keeper, keeper)?;
        let wanted = Footprint::widest(plans, |plan| &plan.layout.persistent);
        if !self.arenas.persistent.iter().map(|arena| arena.size()).eq(wanted) {
            let message = "the new plans lay parameters out differently; plan for the same limits as before";
            return Err(Error::Option(message.to_owned()));
        }
        self.wait_for_losses()?;
        self.wait()?;
        let debug = Debug { poison: self.is_poisoned() };
        self.give_back()?;
        let created = self.create(plans, debug);
        match created {
            Ok(()) => self.keeper = Arc::new(keeper.clone()),
            // What the first failure says is worth more than what follows from it.
            Err(_) => drop(self.give_back()),
        }
        created
    }

    /// Drops everything that belongs to the plans alone.
    fn give_back(&mut self) -> Result<()> {
        self.programs.clear();
        self.arenas.step.clear();
        self.poison = None;
        let transfer = self.transfer.iter().flat_map(|transfer| transfer.buffers());
        self.ledger.keep(self.arenas.persistent.iter().chain(transfer));
        let Footprint { persistent, transfer, .. } = self.footprint;
        self.footprint = Footprint { persistent, transfer, ..Footprint::default() };
        // The driver frees what was dropped when it is asked next.
        self.device().poll()
    }
}
