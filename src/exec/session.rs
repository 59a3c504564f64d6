//! Planned execution: arenas are laid out in advance and bind groups are created once. A step without
//! offloading is one compute pass and one submit, or several if it takes long.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::arenas::Arenas;
use super::clock::Clock;
use super::commands::Commands;
use super::compatible;
use super::feed::{Element, finite};
use super::ledger::Ledger;
use super::offload::Host;
use super::poison::Poison;
use super::program::Program;
use super::slices::SUBMIT_TIME;
use super::statistics::History;
use super::timers::Timers;
use super::transfer::Transfer;
use crate::compile::{Footprint, Plan, transfer_bytes};
use crate::data::{Batch, Values};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::maybe_async;
use crate::optim::Schedule;

/// A plan of a session, by its position among those the session was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramId(pub usize);

/// Debug checks, which cost time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debug {
    /// Fills all step memory with NaN before each step, so that a kernel that reads unwritten memory is
    /// noticed.
    pub poison: bool,
}

/// Plans on a device, with the parameters that they share.
///
/// A session is opened with one plan or several: a training step, a training step for a smaller last batch, a
/// forward pass. They share parameters, optimizer state and step memory. Once the session is open, no step
/// creates a buffer.
pub struct Session {
    pub(super) ledger: Ledger,
    pub(super) arenas: Arenas,
    pub(super) host: Host,
    /// Empty after [`Session::replan`] failed.
    pub(super) programs: Vec<Program>,
    /// The plan with the most optimizer state, in which parameters and optimizer state are looked up.
    pub(super) state_plan: Arc<Plan>,
    pub(super) transfer: Option<Transfer>,
    pub(super) footprint: Footprint,
    pub(super) history: History,
    /// The plan that ran last, whose outputs are in step memory.
    last_run: Option<ProgramId>,
    clock: Clock,
    loss_interval: u64,
    accept_non_finite: bool,
    submit_time: Duration,
    last_loss: Option<f32>,
    losses: VecDeque<(u64, f32)>,
    pub(super) poison: Option<Poison>,
}

/// Advice for parameters that are not finite.
pub(super) const DIVERGED: &str = "lower the learning rate, clip gradients (`Clip::Norm`), or look for log or division of 0 in the \
     model; files saved before are safe";

/// Maximum number of losses stored for [`Session::losses`]; the oldest are dropped.
const KEPT_LOSSES: usize = 4096;

impl Session {
    /// Opens a session for one plan: creates its buffers and uploads the parameters' initial values.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Device`]; [`Error::PlanMismatch`] if the plan was made for limits that the
    /// device does not have.
    #[maybe_async]
    pub async fn new(device: &Device, plan: &Plan) -> Result<Self> {
        Self::with_plans(device, &[plan], Debug::default()).await
    }

    /// Opens a session for several plans over the same parameters.
    ///
    /// # Errors
    /// As [`Session::new`]; [`Error::PlanMismatch`] if the plans do not share their parameters.
    #[maybe_async]
    pub async fn with_plans(device: &Device, plans: &[&Plan], debug: Debug) -> Result<Self> {
        let state_plan = Arc::new(plans[compatible::state_plan(plans, device)?].clone());
        let mut ledger = Ledger::new(device);
        let persistent = Arenas::persistent(plans, &mut ledger)?;
        let piece = transfer_bytes(&Footprint::widest(plans, |plan| &plan.layout.persistent));
        let transfer = if piece > 0 { Some(Transfer::new(piece, &mut ledger)?) } else { None };
        let mut session = Self {
            ledger,
            arenas: Arenas { persistent, step: Vec::new() },
            host: Host::default(),
            programs: Vec::new(),
            state_plan,
            transfer,
            footprint: Footprint::of(plans),
            history: History::of(plans.len()),
            last_run: None,
            clock: Clock::default(),
            loss_interval: 1,
            accept_non_finite: false,
            submit_time: SUBMIT_TIME,
            last_loss: None,
            losses: VecDeque::new(),
            poison: None,
        };
        session.create(plans, debug).await?;
        session.upload_start().await?;
        Ok(session)
    }

    /// Creates everything that belongs to the plans, which is all but parameters and optimizer state.
    #[maybe_async]
    pub(super) async fn create(&mut self, plans: &[&Plan], debug: Debug) -> Result<()> {
        self.footprint = Footprint::of(plans);
        self.history = History::of(plans.len());
        self.last_run = None;
        self.arenas.step = Arenas::step(plans, &mut self.ledger)?;
        self.host.prepare(plans, &mut self.ledger)?;
        for plan in plans {
            let mut program = Program::new(plan, &self.arenas, &mut self.ledger)?;
            program.set_submit_time(self.submit_time);
            self.programs.push(program);
        }
        if self.ledger.created() != self.footprint.total() {
            let (created, planned) = (self.ledger.created(), self.footprint.total());
            return Err(Error::Internal(format!("{created} bytes were created, {planned} were planned")));
        }
        if debug.poison {
            self.poison = Some(Poison::new(&self.ledger.device, &self.arenas.step)?);
        }
        self.ledger.device.settle().await
    }

    /// Writes an input of the first plan for its next step. An input keeps its contents until it is fed
    /// again.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the inputs there are; [`Error::Input`] for a wrong type or length, or labels
    /// out of range; [`Error::NotFinite`] for NaN and infinities (see [`Session::set_accept_non_finite`]).
    #[maybe_async]
    pub async fn feed<T: Element>(&mut self, name: &str, data: &[T]) -> Result<()> {
        self.feed_to(ProgramId(0), name, data).await
    }

    /// Writes an input of any plan.
    ///
    /// # Errors
    /// As [`Session::feed`].
    #[maybe_async]
    pub async fn feed_to<T: Element>(&mut self, id: ProgramId, name: &str, data: &[T]) -> Result<()> {
        self.ready(id)?;
        let program = &mut self.programs[id.0];
        let accept = self.accept_non_finite;
        program.feeds.feed(&self.ledger.device, program.plan.graph(), name, data, accept).await
    }

    /// Sets whether inputs may hold NaN and infinities. The default is `false`: one NaN in a batch makes every
    /// parameter NaN.
    pub fn set_accept_non_finite(&mut self, accept: bool) {
        self.accept_non_finite = accept;
    }

    /// Reads all parameters but buffers and checks that they are finite.
    ///
    /// # Errors
    /// [`Error::NotFinite`] with the first parameter that holds NaN or an infinity; [`Error::DeviceLost`].
    #[maybe_async]
    pub async fn check_parameters(&mut self) -> Result<()> {
        let plan = Arc::clone(&self.state_plan);
        for param in plan.graph().parameters.iter().filter(|param| !param.is_buffer()) {
            let name = param.name();
            finite(&self.parameter(name).await?, || format!("parameter `{name}`"), DIVERGED)?;
        }
        Ok(())
    }

    /// Writes the inputs that a plan has in common with a batch.
    ///
    /// # Errors
    /// As [`Session::feed`], but for unknown names.
    #[maybe_async]
    pub async fn feed_batch(&mut self, id: ProgramId, batch: &Batch) -> Result<()> {
        self.ready(id)?;
        for (name, values) in batch.inputs() {
            if self.programs[id.0].plan.graph().inputs().any(|(_, value)| value.name == name) {
                match values {
                    Values::F32(values) => self.feed_to(id, name, values).await?,
                    Values::U32(values) => self.feed_to(id, name, values).await?,
                }
            }
        }
        Ok(())
    }

    /// Runs the first plan once: one training step.
    ///
    /// # Errors
    /// [`Error::Input`] if an input was never fed; [`Error::LossNotFinite`] if a loss that has arrived is NaN
    /// or infinite; [`Error::DeviceLost`].
    #[maybe_async]
    pub async fn step(&mut self) -> Result<()> {
        self.run(ProgramId(0)).await
    }

    /// Runs a plan once. A training step counts in [`Session::steps`]; a forward pass does not.
    ///
    /// # Errors
    /// As [`Session::step`].
    #[maybe_async]
    pub async fn run(&mut self, id: ProgramId) -> Result<()> {
        self.run_with(id, None).await
    }

    /// Runs a plan like [`Session::run`] and returns start and end of each dispatch, in nanoseconds.
    #[maybe_async]
    pub(super) async fn run_timed(&mut self, id: ProgramId) -> Result<Vec<(f64, f64)>> {
        let timers = Timers::new(&self.ledger.device, self.plan(id)?.program.launches.len())?;
        self.ledger.device.settle().await?;
        self.run_with(id, Some(&timers)).await?;
        timers.read(&self.ledger.device).await
    }

    #[maybe_async]
    async fn run_with(&mut self, id: ProgramId, timers: Option<&Timers>) -> Result<()> {
        self.known(id)?;
        let exchanges = !self.programs[id.0].plan.graph().exchanges.is_empty();
        if exchanges {
            self.host.exchanges.transport()?;
        }
        let outcome = match self.ledger.device.alive() {
            Ok(()) => self.record_and_submit(id, timers).await,
            lost => lost,
        };
        outcome.map_err(|error| {
            self.host.abandon();
            if exchanges { self.host.exchanges.failed(error) } else { error }
        })
    }

    #[maybe_async]
    async fn record_and_submit(&mut self, id: ProgramId, timers: Option<&Timers>) -> Result<()> {
        let device = &self.ledger.device;
        // Plans share their step memory, and poison fills it.
        for (other, program) in self.programs.iter_mut().enumerate() {
            if other != id.0 || self.poison.is_some() {
                program.feeds.overwritten();
            }
        }
        let program = &mut self.programs[id.0];
        self.clock.feed(device, &program.plan, &mut program.feeds).await?;
        let reads_loss = program.trains() && self.clock.steps.is_multiple_of(self.loss_interval);
        let mut arrived = Vec::new();
        if reads_loss {
            arrived.extend(program.loss_ring().make_room(device).await?);
        }
        let mut commands = Commands::new(device);
        if let Some(poison) = &self.poison {
            poison.record(commands.encoder());
        }
        program.record(&mut commands, &self.arenas, &mut self.host, (device, timers)).await?;
        let slot = reads_loss.then(|| program.record_loss(commands.encoder(), &self.arenas));
        let submission = self.host.submit(&mut commands, device)?;
        program.feeds.submitted(&submission);
        if let Some(slot) = slot {
            program.loss_ring().submitted(device, slot, self.clock.steps, submission);
            arrived.extend(program.loss_ring().arrived(device)?);
        }
        self.clock.steps = self.clock.steps.saturating_add(u64::from(program.trains()));
        self.history.ran(id.0);
        self.last_run = Some(id);
        self.note(arrived)
    }

    /// Returns the loss of the last step whose loss was read (see [`Session::set_loss_interval`]). Waits for
    /// it.
    ///
    /// # Errors
    /// [`Error::LossNotFinite`], of several ranks as [`Error::Rank`]; [`Error::NotReady`] before the first step.
    #[maybe_async]
    pub async fn loss(&mut self) -> Result<f32> {
        self.wait_for_losses().await?;
        self.last_loss.ok_or_else(|| Error::NotReady("no training step has been made yet".to_owned()))
    }

    /// Waits for the losses of all steps submitted so far.
    #[maybe_async]
    pub(crate) async fn wait_for_losses(&mut self) -> Result<()> {
        self.ledger.device.alive()?;
        let mut arrived = Vec::new();
        for program in self.programs.iter_mut().filter(|program| program.trains()) {
            while let Some(loss) = program.loss_ring().wait_oldest(&self.ledger.device).await? {
                arrived.push(loss);
            }
        }
        arrived.sort_by_key(|(step, _)| *step);
        self.note(arrived)
    }

    /// Returns the losses that have arrived since the last call, with the numbers of their steps. Does not
    /// wait.
    ///
    /// # Errors
    /// [`Error::LossNotFinite`].
    pub fn losses(&mut self) -> Result<Vec<(u64, f32)>> {
        self.ledger.device.alive()?;
        let mut arrived = Vec::new();
        for program in self.programs.iter_mut().filter(|program| program.trains()) {
            arrived.extend(program.loss_ring().arrived(&self.ledger.device)?);
        }
        arrived.sort_by_key(|(step, _)| *step);
        self.note(arrived)?;
        Ok(self.losses.drain(..).collect())
    }

    /// Reads an output of a plan's last run and waits for it. It must be read before another plan of the
    /// session runs. The loss of a training step is that of the last step whose loss was read.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the outputs there are; [`Error::Input`] for another element type;
    /// [`Error::NotReady`] if the plan has not run, or another one ran after it.
    #[maybe_async]
    pub async fn output<T: Element>(&mut self, id: ProgramId, name: &str) -> Result<Vec<T>> {
        self.ready(id)?;
        let program = &self.programs[id.0];
        let (position, _) = program.plan.graph().output(name)?;
        if program.trains() && position == 0 && T::DTYPE == DType::F32 {
            let loss = [self.loss().await?];
            return Ok(bytemuck::cast_slice(&loss).to_vec());
        }
        self.check_ran_last(id, name)?;
        self.programs[id.0].output(&self.ledger.device, &self.arenas, name).await
    }

    /// Checks that the outputs of a plan are still in step memory.
    pub(super) fn check_ran_last(&self, id: ProgramId, name: &str) -> Result<()> {
        match self.last_run {
            Some(last) if last == id => Ok(()),
            Some(ProgramId(last)) => Err(Error::NotReady(format!(
                "output `{name}` of plan {}: plan {last} ran last, in the same memory",
                id.0
            ))),
            None => Err(Error::NotReady(format!(
                "output `{name}`: plan {} has not run since the session got its plans",
                id.0
            ))),
        }
    }

    /// Returns the plan with this number.
    ///
    /// # Errors
    /// [`Error::NotReady`] if there is none.
    pub fn plan(&self, id: ProgramId) -> Result<&Plan> {
        self.known(id)?;
        Ok(&self.programs[id.0].plan)
    }

    /// Returns the bytes of all buffers created, which equal [`Session::footprint`]'s total.
    pub fn device_bytes(&self) -> u64 {
        self.ledger.created()
    }

    /// Returns the bytes of the fullest rank's buffers, and for how long this rank has waited for others; `None` on one device.
    pub(crate) fn among_ranks(&self) -> Option<(u64, Duration)> {
        let exchanges = &self.host.exchanges;
        (exchanges.fullest > 0).then_some((exchanges.fullest, exchanges.waited))
    }

    /// Returns the number of buffers created; it does not grow once the session is open.
    pub fn buffers(&self) -> usize {
        self.ledger.buffers()
    }

    /// Returns the same bytes by purpose, as planned.
    pub fn footprint(&self) -> Footprint {
        self.footprint
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.ledger.device
    }

    /// Returns the number of training steps made so far.
    pub fn steps(&self) -> u64 {
        self.clock.steps
    }

    /// Sets the number of training steps made: bias correction, schedule and dropout continue from there.
    pub fn set_steps(&mut self, steps: u64) {
        self.clock.steps = steps;
    }

    /// Multiplies the learning rate by a factor that depends on the step.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        self.clock.schedule = schedule;
    }

    /// Replaces the optimizer's learning rate, before any schedule.
    pub fn set_learning_rate(&mut self, learning_rate: f32) {
        self.clock.learning_rate = Some(learning_rate);
    }

    /// Multiplies the learning rate, in addition to the schedule.
    pub(crate) fn set_rate_factor(&mut self, factor: f32) {
        self.clock.rate_factor = Some(factor);
    }

    /// Reads the loss of every `interval`th step only. The default is 1, every step.
    pub fn set_loss_interval(&mut self, interval: u64) {
        self.loss_interval = interval.max(1);
    }

    /// Sets the modelled time of one submit: a longer run is cut into several, which changes no bit. The default
    /// is 100 ms (50 ms in browsers) on a slow adapter of the plan's class, because systems end a device whose submit takes too long,
    /// Windows after 2 s. Runs on software adapters are not cut. If the device has no memory for a submit after
    /// the first update of a parameter, the run is cut short, which is [`Error::Device`] and not
    /// [`Error::SubmitOutOfMemory`].
    pub fn set_submit_time(&mut self, time: Duration) {
        self.submit_time = time;
        self.programs.iter_mut().for_each(|program| program.set_submit_time(time));
    }

    /// Blocks until the device has done all submitted work.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    #[maybe_async]
    pub async fn wait(&self) -> Result<()> {
        self.ledger.device.wait(None).await
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Checks that the device is there and has the plan.
    fn ready(&self, id: ProgramId) -> Result<()> {
        self.ledger.device.alive()?;
        self.known(id)
    }

    fn known(&self, id: ProgramId) -> Result<()> {
        let count = self.programs.len();
        if id.0 < count {
            return Ok(());
        }
        Err(Error::NotReady(match count {
            0 => "the session has no plan since memory ran out; `Session::replan` gives it others".to_owned(),
            _ => format!("the session has {count} plans, there is no number {}", id.0),
        }))
    }

    /// Stores losses that have arrived, and returns an error for the first that is not finite.
    fn note(&mut self, arrived: Vec<(u64, Vec<f32>)>) -> Result<()> {
        for (step, loss) in arrived {
            let Some(&loss) = loss.first() else { continue };
            if !loss.is_finite() {
                let exchanges = &mut self.host.exchanges;
                let rank = exchanges.not_finite.take();
                return Err(exchanges.failed(Error::LossNotFinite { step, loss, rank }));
            }
            self.last_loss = Some(loss);
            self.losses.push_back((step, loss));
            if self.losses.len() > KEPT_LOSSES {
                self.losses.pop_front();
            }
        }
        Ok(())
    }
}

// A browser must not block, and cancels the commands of a page that is closed.
#[cfg(not(target_family = "wasm"))]
impl Drop for Session {
    /// Waits for submitted work: software adapters crash if the process ends while they still run kernels.
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            log::debug!("closing a session: {error}");
        }
    }
}
