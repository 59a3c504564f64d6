//! Replanning: an open session continues with other plans, and keeps its parameters and optimizer state.

use std::sync::Arc;

use super::arenas::Arenas;
use super::compatible;
use super::session::{Debug, Session};
use super::transfer::Transfer;
use crate::compile::{Footprint, Plan, transfer_bytes};
use crate::error::Result;
use crate::maybe_async;

impl Session {
    /// Continues with other plans over the same parameters and the same optimizer. Parameters, optimizer
    /// state, step count, schedule and learning rate are preserved. Buffers of the old plans are freed before
    /// new ones are created, and outputs of earlier runs are lost. The new plans may offload to host memory
    /// what the old plans kept on the device, and vice versa.
    ///
    /// If the device has too little memory for the new plans, the session is left without plans: it can be
    /// read, saved and replanned, but not run.
    ///
    /// # Errors
    /// As [`Session::with_plans`], in which case nothing has changed unless memory ran out;
    /// [`Error::LossNotFinite`] for a loss that was still in flight.
    ///
    /// [`Error::LossNotFinite`]: crate::Error::LossNotFinite
    #[maybe_async]
    pub async fn replan(&mut self, plans: &[&Plan]) -> Result<()> {
        let state_plan = plans[compatible::state_plan(plans, self.device())?];
        compatible::same_state(&self.state_plan, state_plan)?;
        self.wait_for_losses().await?;
        self.wait().await?;
        self.host.flush(&self.ledger.device).await?;
        let debug = Debug { poison: self.is_poisoned() };
        let arenas = Footprint::widest(plans, |plan| &plan.layout.persistent);
        let lies_alike = |s: &crate::compile::Storage| s.offloaded == self.host.has(&s.name);
        let stays = self.arenas.persistent.iter().map(|arena| arena.size()).eq(arenas.iter().copied())
            && state_plan.program.storages.iter().filter(|s| s.is_state()).all(lies_alike)
            && compatible::places(&self.state_plan).eq(compatible::places(state_plan));
        if !stays {
            self.save_state_to_host().await?;
        }
        self.release()?;
        let created = self.recreate(plans, state_plan, (!stays).then_some(&arenas[..]), debug).await;
        if created.is_err() {
            // The first failure is the one to report: an error here would only be a consequence of it.
            drop(self.release());
        }
        created
    }

    /// Creates the buffers and programs of `plans`. Parameters and optimizer state stay where they are if
    /// `arenas` is `None`; otherwise they are moved to new arenas of these sizes.
    #[maybe_async]
    async fn recreate(
        &mut self,
        plans: &[&Plan],
        state_plan: &Plan,
        arenas: Option<&[u64]>,
        debug: Debug,
    ) -> Result<()> {
        if let Some(arenas) = arenas {
            self.arenas.persistent = Arenas::persistent(plans, &mut self.ledger)?;
            let piece = transfer_bytes(arenas);
            self.transfer = if piece > 0 { Some(Transfer::new(piece, &mut self.ledger)?) } else { None };
        }
        self.create(plans, debug).await?;
        self.state_plan = Arc::new(state_plan.clone());
        if arenas.is_some() {
            self.restore().await?;
        }
        Ok(())
    }

    /// Copies all parameters and optimizer state to host memory. Afterwards no buffer of the device is
    /// needed.
    #[maybe_async]
    async fn save_state_to_host(&mut self) -> Result<()> {
        let storages = &self.state_plan.program.storages;
        let here = |name: &String| !self.host.has(name);
        let names: Vec<String> =
            storages.iter().filter(|s| s.is_state()).map(|s| s.name.clone()).filter(here).collect();
        for name in names {
            let words = self.words_of(&name).await?;
            self.host.keep(&name, words);
        }
        Ok(())
    }

    /// Uploads the parameters and optimizer state that belong on the device.
    #[maybe_async]
    async fn restore(&mut self) -> Result<()> {
        let state_plan = Arc::clone(&self.state_plan);
        for storage in state_plan.program.storages.iter().filter(|s| s.persistent) {
            let device = &self.ledger.device;
            let words = self.host.contents(&storage.name, device).await?.map(|words| words.clone());
            if let Some(words) = words {
                let places = self
                    .arenas
                    .elements(&state_plan, super::arenas::lasting_storage(&state_plan, &storage.name)?);
                if let Some(transfer) = &mut self.transfer {
                    let part = |range: std::ops::Range<u64>| {
                        words[range.start as usize..range.end as usize].to_vec()
                    };
                    transfer.upload(&self.ledger, &places, part).await?;
                }
            }
        }
        // Host copies are dropped only now: until all uploads have succeeded, they are the authoritative
        // ones.
        state_plan.program.storages.iter().filter(|s| s.persistent).for_each(|s| self.host.forget(&s.name));
        Ok(())
    }

    /// Drops the buffers that belong to the plans. If host memory has all parameters and optimizer state,
    /// drops their device buffers as well.
    fn release(&mut self) -> Result<()> {
        self.programs.clear();
        self.arenas.step.clear();
        self.poison = None;
        self.host.release();
        let mut lasting = self.state_plan.program.storages.iter().filter(|s| s.is_state());
        if lasting.all(|s| self.host.has(&s.name)) {
            self.arenas.persistent.clear();
            self.transfer = None;
        }
        let transfer = self.transfer.iter().flat_map(|transfer| transfer.buffers());
        self.ledger.keep(self.arenas.persistent.iter().chain(transfer));
        let sizes: Vec<u64> = self.arenas.persistent.iter().map(|arena| arena.size()).collect();
        let transfer = if self.transfer.is_some() { 2 * transfer_bytes(&sizes) } else { 0 };
        self.footprint = Footprint { persistent: sizes.iter().sum(), transfer, ..Footprint::default() };
        // The driver frees dropped buffers at the next poll.
        self.device().poll()
    }
}
