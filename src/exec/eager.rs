//! Eager execution of a plan's dispatches from a live pool: memory is allocated when an operation first
//! writes it and freed after its last use. It serves for debugging, for comparison with planned runs, and as
//! a real workload for pool strategies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::arenas::lasting_storage;
use super::clock::Clock;
use super::feed::{Element, Feeds};
use super::ledger::{Ledger, Purpose};
use super::readback::Readback;
use super::record::{self, Ready};
use super::state_layout::StateLayout;
use super::transfer::{Place, Transfer};
use crate::compile::{Plan, Program, Span, StorageId, TRANSFER_BYTES, Transfer as HostTransfer};
use crate::device::{Buffer, Device};
use crate::error::{Error, Result};
use crate::graph::{Class, ValueId};
use crate::memory::{Backing, Block, EventLog, MemoryStats, Move, Pool, PoolOptions, Request, Tally};

/// Pages of a pool, as buffers on a device.
pub(super) struct Pages {
    ledger: Ledger,
}

impl Backing for Pages {
    type Page = Buffer;

    fn create(&mut self, bytes: u64) -> Result<Buffer, String> {
        let label = format!("pool page {}", self.ledger.buffers());
        self.ledger.create(&label, bytes, Purpose::Arena).map_err(|e| e.to_string())
    }
}

/// Runs a plan's operations one by one from a pool. Results are bit-identical to those of a
/// [`Session`](super::Session). What the plan offloads is moved to host memory and back one tensor at a time.
pub struct Eager {
    plan: Arc<Plan>,
    pub(super) ledger: Ledger,
    pub(super) pool: Pool<Pages>,
    /// The block of each live storage.
    blocks: Vec<Option<Block>>,
    /// Bytes of live blocks by the class and by the layer of their first value.
    pub(super) by_class: Tally,
    pub(super) by_layer: Tally,
    uniforms: Option<Buffer>,
    feeds: Feeds,
    readbacks: Vec<Readback>,
    transfer: Transfer,
    /// Offloaded state and activations, by name.
    host: BTreeMap<String, Vec<u32>>,
    clock: Clock,
    accept_non_finite: bool,
}

impl Eager {
    /// Allocates memory for parameters and optimizer state from a pool, and uploads their initial values.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool's cap is too small, [`Error::OutOfMemory`], [`Error::Device`].
    pub fn new(device: &Device, plan: &Plan, options: PoolOptions) -> Result<Self> {
        if !plan.graph().exchanges.is_empty() {
            let message = "eager execution has one rank, and the plan exchanges tensors with others: run it with `Session`";
            return Err(Error::PlanMismatch(message.to_owned()));
        }
        let mut ledger = Ledger::new(device);
        let pool = Pool::new(options, Pages { ledger: Ledger::new(device) })?;
        // What is wrong with a model's own kernel is found before anything runs.
        let own = plan.program.launches.iter().filter(|(launch, _)| launch.kernel.is_custom());
        own.map(|(launch, _)| record::pipeline(device, launch)).collect::<Result<Vec<_>>>()?;
        let uniforms = record::uniforms(plan, &mut ledger)?;
        let feeds = Feeds::new(plan.graph(), &mut ledger)?;
        let mut readbacks = Vec::new();
        for (name, id) in &plan.graph().outputs {
            readbacks.push(Readback::new(name, plan.graph().value(*id).bytes(), 1, &mut ledger)?);
        }
        let transfer = Transfer::new(TRANSFER_BYTES, &mut ledger)?;
        let blocks = vec![None; plan.program.storages.len()];
        let clock = Clock::default();
        let plan = Arc::new(plan.clone());
        let host = plan.program.host_bytes().into_iter();
        let host = host.map(|(name, bytes)| (name, vec![0; (bytes / 4) as usize])).collect();
        let (by_class, by_layer) = (Tally::default(), Tally::default());
        let mut eager = Self {
            plan,
            ledger,
            pool,
            blocks,
            by_class,
            by_layer,
            uniforms,
            feeds,
            readbacks,
            transfer,
            host,
            clock,
            accept_non_finite: false,
        };
        eager.start()?;
        Ok(eager)
    }

    /// Allocates and initializes parameters and optimizer state. Recycled pages hold old data, so optimizer
    /// state is zeroed explicitly.
    fn start(&mut self) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        for (i, storage) in plan.program.storages.iter().enumerate().filter(|(_, s)| s.persistent) {
            self.take(i)?;
            let place = elements(&self.pool, &self.blocks, &plan, StorageId(i as u32))?;
            match plan.graph().parameters.get(i) {
                Some(param) => {
                    let held = StateLayout::of(&plan, StorageId(i as u32));
                    let words = |words| held.words(words, |part| param.initial(part));
                    self.transfer.upload(&self.ledger, &[place], words)?;
                }
                None => self.transfer.upload(&self.ledger, &[place], |range| {
                    debug_assert!(range.end <= storage.bytes);
                    vec![0.0f32; (range.end - range.start) as usize]
                })?,
            }
        }
        Ok(())
    }

    /// Writes an input for the next step, like [`Session::feed`](super::Session::feed).
    ///
    /// # Errors
    /// As [`Session::feed`](super::Session::feed).
    pub fn feed<T: Element>(&mut self, name: &str, data: &[T]) -> Result<()> {
        self.ledger.device.alive()?;
        self.feeds.feed(&self.ledger.device, self.plan.graph(), name, data, self.accept_non_finite)
    }

    /// Sets whether inputs may hold NaN and infinities, like
    /// [`Session::set_accept_non_finite`](super::Session::set_accept_non_finite).
    pub fn set_accept_non_finite(&mut self, accept: bool) {
        self.accept_non_finite = accept;
    }

    /// Runs the plan's operations once.
    ///
    /// # Errors
    /// [`Error::Pool`] where the pool's cap is reached, with the tensor's name; [`Error::Input`],
    /// [`Error::DeviceLost`].
    pub fn step(&mut self) -> Result<()> {
        self.ledger.device.alive()?;
        let plan = Arc::clone(&self.plan);
        let device = self.ledger.device.clone();
        self.clock.feed(&device, &plan, &mut self.feeds)?;
        let storages = &plan.program.storages;
        // Frees what the last step left for the host to read.
        for (i, storage) in storages.iter().enumerate() {
            if !storage.persistent {
                self.release(i)?;
            }
        }
        for (i, storage) in storages.iter().enumerate() {
            // Inputs are copied before the first operation, which may already overwrite their memory with its
            // result.
            if storage.tenants.first().is_some_and(|(_, class)| *class == Class::Input) {
                self.take(i)?;
            }
        }
        let mut encoder =
            device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let (pool, blocks) = (&self.pool, &self.blocks);
        self.feeds.record(&mut encoder, |value| {
            let place = value_place(pool, blocks, &plan, value).expect("inputs were taken above");
            (place.buffer, place.offset)
        })?;
        let encoder = self.run_operations(&plan, &device, encoder)?;
        let submission = device.submit(encoder)?;
        self.feeds.submitted(&submission);
        self.clock.steps += u64::from(plan.optimizer.is_some());
        device.poll()
    }

    /// Allocates, binds and frees memory, operation by operation. Returns the encoder with the commands that
    /// are left to submit.
    fn run_operations(
        &mut self,
        plan: &Plan,
        device: &Device,
        mut encoder: wgpu::CommandEncoder,
    ) -> Result<wgpu::CommandEncoder> {
        let storages = &plan.program.storages;
        let mut born = vec![Vec::new(); plan.program.order.len() + 1];
        let mut dead = vec![Vec::new(); plan.program.order.len() + 1];
        for (i, storage) in storages.iter().enumerate().filter(|(_, s)| !s.persistent) {
            born[storage.first].push(i);
            dead[storage.last].push(i);
        }
        let mut ready = Vec::new();
        let mut launches = plan.program.launches.iter().enumerate().peekable();
        let mut transfers = plan.program.transfers.iter().peekable();
        for position in 0..plan.program.order.len() {
            for &i in &born[position] {
                self.take(i)?;
            }
            while let Some(transfer) = transfers.next_if(|next| next.position == position && !next.after) {
                self.finish(&mut encoder, &mut ready)?;
                self.transfer_one(plan, transfer)?;
            }
            while let Some((index, (launch, _))) = launches.next_if(|(_, (_, at))| *at == position) {
                let uniforms = self.uniforms.as_ref().expect("a plan with launches has uniforms");
                let (pool, blocks) = (&self.pool, &self.blocks);
                let group = record::group(device, launch, uniforms, index, |span: &Span| {
                    let place = elements(pool, blocks, plan, span.storage).expect("operands are alive");
                    (place.buffer, place.offset + span.offset, span.bytes)
                });
                ready.push(Ready { pipeline: record::pipeline(device, launch)?, group, grid: launch.grid });
            }
            while let Some(transfer) = transfers.next_if(|next| next.position == position) {
                self.finish(&mut encoder, &mut ready)?;
                self.transfer_one(plan, transfer)?;
            }
            for &i in &dead[position] {
                self.release(i)?;
            }
        }
        dispatch(&mut encoder, &ready);
        Ok(encoder)
    }

    /// Submits the commands so far.
    fn finish(&self, encoder: &mut wgpu::CommandEncoder, ready: &mut Vec<Ready>) -> Result<()> {
        let device = &self.ledger.device;
        dispatch(encoder, &std::mem::take(ready));
        let fresh = device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        device.submit(std::mem::replace(encoder, fresh)).map(drop)
    }

    /// Offloads a tensor to host memory or restores one from it, and waits for the transfer.
    fn transfer_one(&mut self, plan: &Plan, transfer: &HostTransfer) -> Result<()> {
        let HostTransfer { up, storage, offset, bytes, name, start, .. } = transfer;
        let place = elements(&self.pool, &self.blocks, plan, *storage)?;
        let place = Place { offset: place.offset + offset, bytes: *bytes, ..place };
        let range = (start / 4) as usize..((start + bytes) / 4) as usize;
        let words = self.host.get_mut(name).and_then(|words| words.get_mut(range));
        let words = words.ok_or_else(|| Error::Internal(format!("`{name}` has no place in host memory")))?;
        if *up {
            let part = |range: Range<u64>| words[range.start as usize..range.end as usize].to_vec();
            self.transfer.upload(&self.ledger, &[place], part)
        } else {
            words.copy_from_slice(&self.transfer.download::<u32>(&self.ledger, &[place])?);
            Ok(())
        }
    }

    /// Reads an output of the last step. Waits for it.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the outputs there are.
    pub fn output<T: Element>(&mut self, name: &str) -> Result<Vec<T>> {
        let (i, id) = self.plan.graph().output(name)?;
        let device = &self.ledger.device;
        let place = value_place(&self.pool, &self.blocks, &self.plan, id)?;
        let mut encoder =
            device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let slot = self.readbacks[i].record(&mut encoder, place.buffer, place.offset);
        let submission = device.submit(encoder)?;
        self.readbacks[i].submitted(device, slot, self.clock.steps, submission);
        let mut data: Vec<T> =
            self.readbacks[i].wait_oldest(device)?.map(|(_, data)| data).unwrap_or_default();
        // An odd number of 16-bit elements is padded to whole words.
        data.truncate(self.plan.graph().value(id).shape.numel() as usize);
        Ok(data)
    }

    /// Reads a parameter or optimizer state by name.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names there are.
    pub fn parameter(&mut self, name: &str) -> Result<Vec<f32>> {
        let storage = lasting_storage(&self.plan, name)?;
        let held = StateLayout::of(&self.plan, storage);
        if let Some(words) = self.host.get(name) {
            return Ok(held.widened(words));
        }
        let place = elements(&self.pool, &self.blocks, &self.plan, storage)?;
        Ok(held.widened(&self.transfer.download(&self.ledger, &[place])?))
    }

    /// Compacts the pool between two steps: copies at most `budget` bytes of blocks on the device so that
    /// pages become empty, and releases those pages. Returns the bytes released. Results stay bit-identical.
    ///
    /// # Errors
    /// [`Error::Pool`], [`Error::DeviceLost`].
    pub fn compact(&mut self, budget: u64) -> Result<u64> {
        let moves = self.pool.relocate(budget)?;
        let device = self.ledger.device.clone();
        let mut encoder =
            device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for Move { from, to } in &moves {
            let pages = self.pool.page(from.page).zip(self.pool.page(to.page));
            let (source, target) =
                pages.ok_or_else(|| Error::Internal("a block without a page".to_owned()))?;
            encoder.copy_buffer_to_buffer(source, from.offset, target, to.offset, from.size.min(to.size));
        }
        device.submit(encoder)?;
        for Move { from, to } in moves {
            if let Some(i) = self.blocks.iter().position(|block| *block == Some(from)) {
                self.count_out(i, from.size);
                self.count_in(i, to.size);
                self.blocks[i] = Some(to);
            }
            self.pool.free(from)?;
        }
        device.wait(None)?;
        Ok(self.pool.trim())
    }

    /// Returns what the pool holds now and its peaks, under PyTorch's names.
    pub fn stats(&self) -> &MemoryStats {
        self.pool.stats()
    }

    /// Returns the allocations and releases so far: the last [`PoolOptions::events`] of them, which by
    /// default keeps none. Written as text, they are what `wgrad replay` runs through every strategy:
    ///
    /// ```no_run
    /// use wgrad::exec::Eager;
    /// use wgrad::memory::{PoolOptions, trace::write_events};
    /// use wgrad::{models::Model, prelude::*};
    ///
    /// let device = Device::new()?;
    /// let step = Model::named("digits", 0)?.train_step(32)?;
    /// let plan = step.plan(&PlanOptions::default(), device.limits())?;
    /// let options = PoolOptions { events: 1_000_000, ..PoolOptions::default() };
    /// let mut eager = Eager::new(&device, &plan, options)?;
    /// for _ in 0..3 {
    ///     eager.feed("x", &vec![0.5f32; 32 * 64])?;
    ///     eager.feed("y", &vec![7u32; 32])?;
    ///     eager.step()?;
    /// }
    /// assert_eq!(eager.log().dropped(), 0, "a log with gaps cannot be replayed");
    /// std::fs::write("digits.csv", write_events(eager.log().events()))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log(&self) -> &EventLog {
        self.pool.log()
    }

    /// Returns the bytes of all buffers created: the pool's pages, and uniform, staging, readback and
    /// transfer buffers.
    pub fn device_bytes(&self) -> u64 {
        self.ledger.created() + self.pool.stats().reserved.current
    }

    fn take(&mut self, storage: usize) -> Result<()> {
        let program = &self.plan.program;
        let wanted = &program.storages[storage];
        if self.blocks[storage].is_none() && wanted.after.is_none() {
            let class = wanted.class_at(wanted.first).name();
            let row: Vec<usize> = program.row(StorageId(storage as u32)).collect();
            let bytes = row.iter().map(|&i| program.storages[i].bytes).sum();
            let name = match row.len() {
                1 => wanted.name.clone(),
                n => format!("{} and {} more", wanted.name, n - 1),
            };
            let block = self.pool.alloc(Request::new(bytes, &name, class))?;
            self.count_in(storage, block.size);
            self.blocks[storage] = Some(block);
        }
        Ok(())
    }

    fn count_in(&mut self, storage: usize, bytes: u64) {
        for (class, layer, bytes) in shares(&self.plan.program, storage, bytes) {
            self.by_class.of(class).add(bytes);
            self.by_layer.of(layer).add(bytes);
        }
    }

    fn count_out(&mut self, storage: usize, bytes: u64) {
        for (class, layer, bytes) in shares(&self.plan.program, storage, bytes) {
            self.by_class.of(class).sub(bytes);
            self.by_layer.of(layer).sub(bytes);
        }
    }

    fn release(&mut self, storage: usize) -> Result<()> {
        match self.blocks[storage].take() {
            Some(block) => {
                self.count_out(storage, block.size);
                Ok(self.pool.free(block)?)
            }
            None => Ok(()),
        }
    }
}

impl Drop for Eager {
    /// Waits for submitted work, as [`Session`](super::Session) does.
    fn drop(&mut self) {
        if let Err(error) = self.ledger.device.wait(None) {
            log::debug!("closing an eager run: {error}");
        }
    }
}

fn dispatch(encoder: &mut wgpu::CommandEncoder, ready: &[Ready]) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    record::encode(&mut pass, ready);
}

/// Returns class, layer and bytes of each storage in a block. The first one also counts the bytes that the
/// pool adds.
fn shares(program: &Program, first: usize, bytes: u64) -> impl Iterator<Item = (&'static str, &str, u64)> {
    let row: Vec<usize> = program.row(StorageId(first as u32)).collect();
    let added = bytes - row.iter().map(|&i| program.storages[i].bytes).sum::<u64>();
    row.into_iter().map(move |i| {
        let of = &program.storages[i];
        let bytes = of.bytes + if i == first { added } else { 0 };
        (of.class_at(of.first).name(), program.layer_of(i), bytes)
    })
}

/// Returns the place of the elements of a live storage.
fn elements<'a>(
    pool: &'a Pool<Pages>,
    blocks: &[Option<Block>],
    plan: &Plan,
    storage: StorageId,
) -> Result<Place<'a>> {
    let wanted = &plan.program.storages[storage.0 as usize];
    let (first, start) = wanted.after.unwrap_or((storage, 0));
    let block = blocks[first.0 as usize];
    let buffer = block.and_then(|block| pool.page(block.page));
    match (block, buffer) {
        (Some(block), Some(buffer)) => {
            Ok(Place { buffer, offset: block.offset + start, bytes: wanted.used_bytes })
        }
        _ => Err(Error::NotReady(format!("`{}` is not in memory: run a step first", wanted.name))),
    }
}

fn value_place<'a>(
    pool: &'a Pool<Pages>,
    blocks: &[Option<Block>],
    plan: &Plan,
    value: ValueId,
) -> Result<Place<'a>> {
    let storage = plan.program.storage_of[value.index()].expect("inputs and outputs have storage");
    let whole = elements(pool, blocks, plan, storage)?;
    Ok(Place { offset: whole.offset + plan.program.offset_of[value.index()], ..whole })
}
