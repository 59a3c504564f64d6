//! Other plans for a session that is open: what lives from step to step goes on.

use std::sync::Arc;

use super::arenas::Arenas;
use super::compatible;
use super::session::{Debug, Session};
use super::transfer::Transfer;
use crate::compile::{Footprint, Plan, transfer_bytes};
use crate::error::Result;

impl Session {
    /// Goes on with other plans over the same parameters and the same optimizer. Parameters, optimizer state, the count of
    /// steps, schedule and learning rate stay as they are; what belongs to the old plans is given back to the device before
    /// anything is created. Outputs of earlier runs are gone. The new plans may keep in the host's memory what the old ones
    /// kept on the device, and the other way round.
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
        self.wait_for_losses()?;
        self.wait()?;
        self.host.settle(&self.ledger.device)?;
        let debug = Debug { poison: self.is_poisoned() };
        let arenas = Footprint::widest(plans, |plan| &plan.layout.persistent);
        let lies_alike = |s: &crate::compile::Storage| s.offloaded == self.host.has(&s.name);
        let stays = self.arenas.persistent.iter().map(|arena| arena.size()).eq(arenas.iter().copied())
            && keeper.program.storages.iter().filter(|s| s.lasts()).all(lies_alike)
            && compatible::places(&self.keeper).eq(compatible::places(keeper));
        if !stays {
            self.evacuate()?;
        }
        self.give_back()?;
        let created = self.recreate(plans, keeper, (!stays).then_some(&arenas[..]), debug);
        if created.is_err() {
            // What the first failure says is worth more than what follows from it.
            drop(self.give_back());
        }
        created
    }

    /// Creates everything for plans, with parameters and state where they are, or in new arenas of these sizes.
    fn recreate(
        &mut self,
        plans: &[&Plan],
        keeper: &Plan,
        arenas: Option<&[u64]>,
        debug: Debug,
    ) -> Result<()> {
        if let Some(arenas) = arenas {
            self.arenas.persistent = Arenas::persistent(plans, &mut self.ledger)?;
            let piece = transfer_bytes(arenas);
            self.transfer = if piece > 0 { Some(Transfer::new(piece, &mut self.ledger)?) } else { None };
        }
        self.create(plans, debug)?;
        self.keeper = Arc::new(keeper.clone());
        if arenas.is_some() {
            self.move_in()?;
        }
        Ok(())
    }

    /// Copies everything that lives from step to step into the host's memory; nothing of the device is needed after it.
    fn evacuate(&mut self) -> Result<()> {
        let storages = &self.keeper.program.storages;
        let here = |name: &String| !self.host.has(name);
        let names: Vec<String> =
            storages.iter().filter(|s| s.lasts()).map(|s| s.name.clone()).filter(here).collect();
        for name in names {
            let words = self.words_of(&name)?;
            self.host.keep(&name, words);
        }
        Ok(())
    }

    /// Brings what belongs on the device there.
    fn move_in(&mut self) -> Result<()> {
        let keeper = Arc::clone(&self.keeper);
        for storage in keeper.program.storages.iter().filter(|s| s.persistent) {
            let device = &self.ledger.device;
            let words = self.host.contents(&storage.name, device)?.map(|words| words.clone());
            if let Some(words) = words {
                let place =
                    self.arenas.elements(&keeper, super::arenas::lasting_storage(&keeper, &storage.name)?);
                if let Some(transfer) = &mut self.transfer {
                    let part = |range: std::ops::Range<u64>| {
                        words[range.start as usize..range.end as usize].to_vec()
                    };
                    transfer.upload(&self.ledger, place, part)?;
                }
            }
        }
        // Only now: until everything is there, the host's copy is the one that counts.
        keeper.program.storages.iter().filter(|s| s.persistent).for_each(|s| self.host.forget(&s.name));
        Ok(())
    }

    /// Drops everything that belongs to the plans alone; where the host has everything, parameters on the device as well.
    fn give_back(&mut self) -> Result<()> {
        self.programs.clear();
        self.arenas.step.clear();
        self.poison = None;
        self.host.release();
        let mut lasting = self.keeper.program.storages.iter().filter(|s| s.lasts());
        if lasting.all(|s| self.host.has(&s.name)) {
            self.arenas.persistent.clear();
            self.transfer = None;
        }
        let transfer = self.transfer.iter().flat_map(|transfer| transfer.buffers());
        self.ledger.keep(self.arenas.persistent.iter().chain(transfer));
        let sizes: Vec<u64> = self.arenas.persistent.iter().map(|arena| arena.size()).collect();
        let transfer = if self.transfer.is_some() { 2 * transfer_bytes(&sizes) } else { 0 };
        self.footprint = Footprint { persistent: sizes.iter().sum(), transfer, ..Footprint::default() };
        // The driver frees what was dropped when it is asked next.
        self.device().poll()
    }
}
