//! Reading and writing of a session's parameters and optimizer state.

use std::ops::Range;

use super::Session;
use super::arenas::{correction_of, lasting_storage};
use super::ranks::all_gather;
use super::state_layout::StateLayout;
use super::transfer::Place;
use crate::compile::StorageId;
use crate::error::{Error, Result};
use crate::graph::{LOSS_SCALE, Op, PartOf};
use crate::maybe_async;
use crate::progress;

impl Session {
    /// Returns a parameter or optimizer state by name, row-major; 16-bit weights are widened to `f32`. Waits
    /// for the steps submitted so far. Words that are not `f32`, such as the codes of
    /// [`Adam8bit`](crate::optim::Adam8bit), are returned as their bits: [`f32::to_bits`] gives the words.
    ///
    /// Of parameters and optimizer state that are sharded ([`Shard`](crate::compile::Shard)) or split
    /// ([`Parallel::tensor`](crate::compile::Parallel::tensor)), each rank has a part: all ranks must call this for the same
    /// name, and each gets the whole.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names there are; [`Error::Rank`] and [`Error::NotReady`] for what is sharded.
    #[maybe_async]
    pub async fn parameter(&mut self, name: &str) -> Result<Vec<f32>> {
        let storage = lasting_storage(&self.state_plan, name)?;
        let layout = StateLayout::of(&self.state_plan, storage);
        let own = layout.widened(&self.words_of(name).await?);
        let Some(part_of) = layout.part_of else { return Ok(own) };
        let mut all = vec![0.0; part_of.whole.numel() as usize];
        let exchanges = &mut self.host.exchanges;
        let own = bytemuck::cast_slice(&own);
        let gathered = exchanges.transport().and_then(|ranks| all_gather(ranks, part_of.first, own));
        for (first, part) in gathered.map_err(|error| exchanges.failed(error))? {
            let elements = part.len() as u64 / 4;
            // Shares in one run differ in their lengths.
            let run = if part_of.pitch == part_of.whole.numel() { elements } else { part_of.run };
            let mut part = &part[..];
            for to in (PartOf { first, run, ..part_of }).runs(0..elements) {
                let to = &mut all[to.start as usize..to.end as usize];
                let from = part.split_off(..4 * to.len()).unwrap_or_default();
                bytemuck::cast_slice_mut::<f32, u8>(to).copy_from_slice(from);
            }
        }
        Ok(all)
    }

    /// Returns a parameter or optimizer state as the words in which it is stored.
    #[maybe_async]
    pub(super) async fn words_of(&mut self, name: &str) -> Result<Vec<u32>> {
        let storage = lasting_storage(&self.state_plan, name)?;
        self.ledger.device.alive()?;
        if let Some(words) = self.host.contents(name, &self.ledger.device).await? {
            return Ok(words.clone());
        }
        let places = self.arenas.elements(&self.state_plan, storage);
        match &mut self.transfer {
            Some(transfer) => transfer.download(&self.ledger, &places).await,
            None => Ok(Vec::new()),
        }
    }

    /// Replaces a parameter or optimizer state. Words that are not `f32` are passed as their bits, as
    /// [`Session::parameter`] returns them. Values for 16-bit storage are rounded to nearest, and the 8 bits beside them in
    /// [`WeightStorage::Bf24`](crate::dtype::WeightStorage::Bf24) set to 0. Of what is sharded it takes the whole and keeps this
    /// rank's part.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names there are; [`Error::Input`] for a wrong length.
    #[maybe_async]
    pub async fn set_parameter(&mut self, name: &str, data: &[f32]) -> Result<()> {
        self.set_storage(lasting_storage(&self.state_plan, name)?, data).await?;
        let Some(correction) = correction_of(&self.state_plan, name) else { return Ok(()) };
        let words = StateLayout::of(&self.state_plan, correction).whole();
        self.set_storage(correction, &vec![0.0; words as usize]).await
    }

    #[maybe_async]
    async fn set_storage(&mut self, storage: StorageId, data: &[f32]) -> Result<()> {
        let name = &self.state_plan.program.storages[storage.0 as usize].name;
        let held = StateLayout::of(&self.state_plan, storage);
        if held.whole() != data.len() as u64 {
            let message = format!("takes {} elements, got {}", held.whole(), data.len());
            return Err(Error::Input { name: name.to_owned(), message });
        }
        let of_whole = |range: Range<u64>| data[range.start as usize..range.end as usize].to_vec();
        let part = |range: Range<u64>| held.own(range, of_whole);
        self.ledger.device.alive()?;
        if let Some(words) = self.host.contents(name, &self.ledger.device).await? {
            words.copy_from_slice(&held.dtype.pack(&part(0..held.elements)));
            return Ok(());
        }
        let places = self.arenas.elements(&self.state_plan, storage);
        match &mut self.transfer {
            Some(transfer) => transfer.upload(&self.ledger, &places, |words| held.words(words, part)).await,
            None => Ok(()),
        }
    }

    /// Returns the loss scale of the next step and the number of steps skipped so far; `None` if gradients
    /// are not scaled. Waits for the steps submitted so far.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    #[maybe_async]
    pub async fn loss_scale(&mut self) -> Result<Option<(f32, u64)>> {
        let seed = self.state_plan.graph().nodes.iter().find_map(|node| match node.op {
            Op::LossScaleSeed { start } => Some(start),
            _ => None,
        });
        let Some(start) = seed else { return Ok(None) };
        let state = self.parameter(LOSS_SCALE).await?;
        let scale = if state[0] == 0.0 { start } else { state[0] };
        Ok(Some((scale, state[2] as u64)))
    }

    /// Reads raw words of an arena.
    #[maybe_async]
    pub(super) async fn read_words(&mut self, place: Place<'_>) -> Result<Vec<u32>> {
        match &mut self.transfer {
            Some(transfer) => transfer.download(&self.ledger, &[place]).await,
            None => Err(Error::NotReady("a session without parameters cannot be read this way".to_owned())),
        }
    }

    /// Uploads the parameters' initial values. Optimizer state starts as zeros, which a new buffer holds.
    #[maybe_async]
    pub(super) async fn upload_start(&mut self) -> Result<()> {
        let plan = &self.state_plan;
        let Some(transfer) = &mut self.transfer else { return Ok(()) };
        let parameters = &plan.graph().parameters;
        let task = progress::task("parameters", parameters.iter().map(|p| p.shape().numel()).sum::<u64>());
        let mut filled = 0;
        for (i, param) in parameters.iter().enumerate() {
            // Parameters are the first storages, in the order of registration.
            let storage = StorageId(i as u32);
            let (places, held) = (self.arenas.elements(plan, storage), StateLayout::of(plan, storage));
            let initial = |part: Range<u64>| held.own(part, |run| param.initial(run));
            transfer.upload(&self.ledger, &places, |words| held.words(words, initial)).await?;
            filled += param.shape().numel();
            task.done(filled);
        }
        Ok(())
    }
}
