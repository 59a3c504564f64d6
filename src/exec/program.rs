//! One plan of a session, ready to run: its dispatches, inputs and outputs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::arenas::Arenas;
use super::commands::Commands;
use super::feed::{Element, Feeds};
use super::ledger::Ledger;
use super::offload::Host;
use super::readback::Readback;
use super::record::{self, Ready};
use super::slices;
use super::timers::Timers;
use super::transfer::Place;
use crate::compile::{Plan, Span, Transfer, readback_slots};
use crate::device::{Buffer, Device};
use crate::error::{Error, Result};
use crate::maybe_async;

pub(super) struct Program {
    pub(super) plan: Arc<Plan>,
    pub(super) feeds: Feeds,
    launches: Vec<Ready>,
    /// For each transfer of the plan, the index of the dispatch before which it happens.
    stops: Vec<usize>,
    /// The dispatches before which a submit ends.
    cuts: Vec<usize>,
    /// The first dispatches, which change no state and transfer nothing: a run that fails after them can be
    /// repeated.
    pure: usize,
    readbacks: Vec<Readback>,
    /// The uniform buffer that the launches' bind groups refer to.
    _uniforms: Option<Buffer>,
}

impl Program {
    /// Compiles every kernel and creates every bind group.
    pub(super) fn new(plan: &Plan, arenas: &Arenas, ledger: &mut Ledger) -> Result<Self> {
        let device = ledger.device.clone();
        let uniforms = record::uniforms(plan, ledger)?;
        let mut launches = Vec::new();
        record::prepare(&device, &plan.program.launches)?;
        for (index, (launch, _)) in plan.program.launches.iter().enumerate() {
            let uniforms = uniforms.as_ref().expect("a plan with launches has uniforms");
            let group = record::group(&device, launch, uniforms, index, |span: &Span| {
                let (buffer, offset) = arenas.place(plan, span.storage, span.offset);
                (buffer, offset, span.bytes)
            });
            launches.push(Ready { pipeline: record::pipeline(&device, launch)?, group, grid: launch.grid });
        }
        let feeds = Feeds::new(plan.graph(), ledger)?.keep_lasting(plan);
        let mut readbacks = Vec::new();
        for (i, (name, id)) in plan.graph().outputs.iter().enumerate() {
            let bytes = plan.graph().value(*id).bytes();
            readbacks.push(Readback::new(name, bytes, readback_slots(plan, i), ledger)?);
        }
        let (stops, cuts, pure) = (stops(plan), Vec::new(), slices::pure(plan));
        let plan = Arc::new(plan.clone());
        Ok(Self { plan, feeds, launches, stops, cuts, pure, readbacks, _uniforms: uniforms })
    }

    /// Sets the modelled time of one submit.
    pub(super) fn set_submit_time(&mut self, time: Duration) {
        self.cuts = slices::cuts(&self.plan, time);
    }

    /// Whether a run is a training step, whose first output is the loss.
    pub(super) fn trains(&self) -> bool {
        self.plan.optimizer.is_some()
    }

    /// Returns the ring of buffers through which the loss is read back.
    pub(super) fn loss_ring(&mut self) -> &mut Readback {
        &mut self.readbacks[0]
    }

    /// Records the copies of inputs, the dispatches, and the transfers to and from host memory, with timers
    /// if there are any, and submits all but the last part.
    #[maybe_async]
    pub(super) async fn record(
        &mut self,
        commands: &mut Commands,
        arenas: &Arenas,
        host: &mut Host,
        (device, timers): (&Device, Option<&Timers>),
    ) -> Result<()> {
        let plan = &self.plan;
        self.feeds.record(commands.encoder(), |value| arenas.place_of(plan, value))?;
        let mut from = 0;
        host.exchanges.begin();
        for (i, (&launch, transfer)) in self.stops.iter().zip(&plan.program.transfers).enumerate() {
            self.dispatch(commands, host, (device, timers), from..launch)?;
            from = launch;
            let Transfer { up, storage, offset, bytes, name, start, exchange, .. } = transfer;
            let (buffer, offset) = arenas.place(plan, *storage, *offset);
            let place = Place { buffer, offset, bytes: *bytes };
            if *up {
                if let Some(exchange) = exchange {
                    host.receive(*exchange, &plan.graph().exchanges, device).await?;
                }
                host.upload((name, *start), place, commands, device).await?;
                continue;
            }
            host.take((name, *start), place, commands, device).await?;
            if let Some(exchange) = exchange.filter(|_| plan.program.sends_last(i)) {
                host.send(exchange, commands, device)?;
            }
        }
        self.dispatch(commands, host, (device, timers), from..self.launches.len())?;
        if let Some(timers) = timers {
            timers.resolve(commands.encoder());
        }
        Ok(())
    }

    fn dispatch(
        &self,
        commands: &mut Commands,
        host: &mut Host,
        (device, timers): (&Device, Option<&Timers>),
        range: Range<usize>,
    ) -> Result<()> {
        let mut from = range.start;
        for &cut in self.cuts.iter().filter(|cut| **cut > 0 && range.contains(cut)) {
            self.encode(commands.encoder(), from..cut, timers);
            let repeatable = !commands.changed && cut <= self.pure;
            host.submit(commands, device)?;
            commands.changed = !repeatable;
            from = cut;
        }
        self.encode(commands.encoder(), from..range.end, timers);
        Ok(())
    }

    fn encode(&self, encoder: &mut wgpu::CommandEncoder, range: Range<usize>, timers: Option<&Timers>) {
        let launches = &self.launches[range.clone()];
        match timers {
            Some(timers) => timers.encode(encoder, range.start, launches),
            None if launches.is_empty() => {}
            None => {
                let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
                record::encode(&mut pass, launches);
            }
        }
    }

    /// Records some of the dispatches, `times` times.
    pub(super) fn record_again(&self, encoder: &mut wgpu::CommandEncoder, launches: &[usize], times: usize) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for _ in 0..times {
            record::encode(&mut pass, launches.iter().map(|&launch| &self.launches[launch]));
        }
    }

    /// Records the copy of the loss; returns the slot it goes to.
    pub(super) fn record_loss(&self, encoder: &mut wgpu::CommandEncoder, arenas: &Arenas) -> usize {
        let (buffer, offset) = arenas.place_of(&self.plan, self.plan.graph().outputs[0].1);
        self.readbacks[0].record(encoder, buffer, offset)
    }

    /// Copies an output of the last run and waits for it.
    #[maybe_async]
    pub(super) async fn output<T: Element>(
        &mut self,
        device: &Device,
        arenas: &Arenas,
        name: &str,
    ) -> Result<Vec<T>> {
        let (i, id) = self.plan.graph().output(name)?;
        let dtype = self.plan.graph().value(id).dtype;
        if dtype != T::DTYPE {
            let message = format!("is {dtype}, asked for {}", T::DTYPE);
            return Err(Error::Input { name: name.to_owned(), message });
        }
        let mut encoder =
            device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let (buffer, offset) = arenas.place_of(&self.plan, id);
        let slot = self.readbacks[i].record(&mut encoder, buffer, offset);
        let submission = device.submit(encoder)?;
        self.readbacks[i].submitted(device, slot, 0, submission);
        let mut data: Vec<T> =
            self.readbacks[i].wait_oldest(device).await?.map(|(_, data)| data).unwrap_or_default();
        // An odd number of 16-bit elements is padded to whole words.
        data.truncate(self.plan.graph().value(id).shape.numel() as usize);
        Ok(data)
    }
}

/// Returns for each transfer the index of the dispatch before which it happens.
fn stops(plan: &Plan) -> Vec<usize> {
    let launches = &plan.program.launches;
    let stop = |transfer: &Transfer| {
        let before = |(_, position): &(_, usize)| *position < transfer.position + usize::from(transfer.after);
        launches.partition_point(before)
    };
    plan.program.transfers.iter().map(stop).collect()
}
