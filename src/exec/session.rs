//! Planned execution: arenas laid out in advance, bind groups made once, one pass and one submit for each step.

use std::collections::VecDeque;

use super::arenas::{Arenas, persistent_storage};
use super::clock::Clock;
use super::feed::Element;
use super::ledger::Ledger;
use super::poison::Poison;
use super::program::Program;
use super::transfer::{Place, Transfer};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::optim::Schedule;
use crate::plan::{Footprint, Plan, StorageId, transfer_bytes};

/// A plan of a session, by its position among those the session was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramId(pub usize);

/// Checks that cost time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debug {
    /// Fill all step memory with NaN before each step: a kernel that reads what nobody wrote shows.
    pub poison: bool,
}

/// Plans on a device, with the parameters that they share.
///
/// A session is opened with one plan or several: a training step, the same for a smaller last batch, a forward pass.
/// They share parameters, optimizer state and step memory. After it is open, no step creates a buffer.
pub struct Session {
    pub(super) ledger: Ledger,
    pub(super) arenas: Arenas,
    programs: Vec<Program>,
    transfer: Option<Transfer>,
    footprint: Footprint,
    clock: Clock,
    loss_interval: u64,
    last_loss: Option<f32>,
    losses: VecDeque<(u64, f32)>,
    poison: Option<Poison>,
}

/// Losses that nobody asks for are forgotten beyond this many.
const KEPT_LOSSES: usize = 4096;

impl Session {
    /// Opens a session for one plan: creates its buffers and uploads the parameters' start.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Device`]; [`Error::Option`] if the plan was made for limits that the device
    /// does not have.
    pub fn new(device: &Device, plan: &Plan) -> Result<Self> {
        Self::with_plans(device, &[plan], Debug::default())
    }

    /// Opens a session for several plans over the same parameters.
    ///
    /// # Errors
    /// As [`Session::new`]; [`Error::Option`] if the plans do not share their parameters.
    pub fn with_plans(device: &Device, plans: &[&Plan], debug: Debug) -> Result<Self> {
        let Some(first) = plans.first() else {
            return Err(Error::Option("a session needs at least one plan".to_owned()));
        };
        for plan in plans {
            fits(plan, device)?;
            same_parameters(first, plan)?;
        }
        let mut ledger = Ledger::new(device);
        let footprint = Footprint::of(plans);
        let arenas = Arenas::new(plans, &mut ledger)?;
        let piece = transfer_bytes(&Footprint::widest(plans, |plan| &plan.layout.persistent));
        let transfer = if piece > 0 { Some(Transfer::new(piece, &mut ledger)?) } else { None };
        let programs =
            plans.iter().map(|plan| Program::new(plan, &arenas, &mut ledger)).collect::<Result<Vec<_>>>()?;
        if ledger.created() != footprint.total() {
            let (created, planned) = (ledger.created(), footprint.total());
            return Err(Error::Internal(format!("{created} bytes were created, {planned} were planned")));
        }
        let poison = if debug.poison { Some(Poison::new(device, &arenas.step)?) } else { None };
        let mut session = Self {
            ledger,
            arenas,
            programs,
            transfer,
            footprint,
            clock: Clock::default(),
            loss_interval: 1,
            last_loss: None,
            losses: VecDeque::new(),
            poison,
        };
        session.upload_start()?;
        Ok(session)
    }

    /// Writes an input of the first plan for its next step. An input keeps its contents until it is fed again.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the inputs there are; [`Error::Input`] for a wrong type or length, or labels out of
    /// range.
    pub fn feed<T: Element>(&mut self, name: &str, data: &[T]) -> Result<()> {
        self.feed_to(ProgramId(0), name, data)
    }

    /// Writes an input of any plan.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn feed_to<T: Element>(&mut self, id: ProgramId, name: &str, data: &[T]) -> Result<()> {
        self.known(id)?;
        let program = &mut self.programs[id.0];
        program.feeds.feed(&self.ledger.device, program.plan.graph(), name, data)
    }

    /// Runs the first plan once: one training step.
    ///
    /// # Errors
    /// [`Error::Input`] if an input was never fed; [`Error::LossNotFinite`] if a loss that has arrived is NaN or
    /// infinite; [`Error::DeviceLost`].
    pub fn step(&mut self) -> Result<()> {
        self.run(ProgramId(0))
    }

    /// Runs a plan once. A training step counts in [`Session::steps`]; a forward pass does not.
    ///
    /// # Errors
    /// As [`Session::step`].
    pub fn run(&mut self, id: ProgramId) -> Result<()> {
        self.known(id)?;
        let device = &self.ledger.device;
        let program = &mut self.programs[id.0];
        self.clock.feed(device, &program.plan, &mut program.feeds)?;
        let reads_loss = program.trains() && self.clock.steps.is_multiple_of(self.loss_interval);
        let mut arrived = Vec::new();
        if reads_loss {
            arrived.extend(program.loss_ring().make_room(device)?);
        }
        let mut encoder =
            device.wgpu_device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        if let Some(poison) = &self.poison {
            poison.record(&mut encoder);
        }
        program.record(&mut encoder, &self.arenas)?;
        let slot = reads_loss.then(|| program.record_loss(&mut encoder, &self.arenas));
        let submission = device.wgpu_queue().submit([encoder.finish()]);
        program.feeds.submitted(&submission);
        if let Some(slot) = slot {
            program.loss_ring().submitted(device, slot, self.clock.steps, submission);
            arrived.extend(program.loss_ring().arrived(device)?);
        }
        self.clock.steps += u64::from(program.trains());
        self.note(arrived)
    }

    /// The loss of the last step whose loss was to be read. Waits for it.
    ///
    /// # Errors
    /// [`Error::LossNotFinite`]; [`Error::Option`] before the first step.
    pub fn loss(&mut self) -> Result<f32> {
        let mut arrived = Vec::new();
        for program in self.programs.iter_mut().filter(|program| program.trains()) {
            while let Some(loss) = program.loss_ring().wait_oldest(&self.ledger.device)? {
                arrived.push(loss);
            }
        }
        arrived.sort_by_key(|(step, _)| *step);
        self.note(arrived)?;
        self.last_loss.ok_or_else(|| Error::Option("no training step has been made yet".to_owned()))
    }

    /// Losses that have arrived since the last call, with the number of their step. Does not wait.
    ///
    /// # Errors
    /// [`Error::LossNotFinite`].
    pub fn losses(&mut self) -> Result<Vec<(u64, f32)>> {
        let mut arrived = Vec::new();
        for program in self.programs.iter_mut().filter(|program| program.trains()) {
            arrived.extend(program.loss_ring().arrived(&self.ledger.device)?);
        }
        arrived.sort_by_key(|(step, _)| *step);
        self.note(arrived)?;
        Ok(self.losses.drain(..).collect())
    }

    /// Reads an output of a plan's last run. Waits for it. It must be read before another plan of the session runs.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the outputs there are; [`Error::Input`] for another element type.
    pub fn output<T: Element>(&mut self, id: ProgramId, name: &str) -> Result<Vec<T>> {
        self.known(id)?;
        let program = &self.programs[id.0];
        if program.trains()
            && program.plan.graph().outputs[0].0 == name
            && T::DTYPE == crate::dtype::DType::F32
        {
            let loss = [self.loss()?];
            return Ok(bytemuck::cast_slice(&loss).to_vec());
        }
        self.programs[id.0].output(&self.ledger.device, &self.arenas, name)
    }

    /// A parameter or optimizer state by name, row-major. Waits for the steps submitted so far.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names there are.
    pub fn parameter(&mut self, name: &str) -> Result<Vec<f32>> {
        let plan = &self.programs[0].plan;
        let place = self.arenas.elements(plan, persistent_storage(plan, name)?);
        match &mut self.transfer {
            Some(transfer) => transfer.download(&self.ledger, place),
            None => Ok(Vec::new()),
        }
    }

    /// Replaces a parameter or optimizer state.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names there are; [`Error::Input`] for a wrong length.
    pub fn set_parameter(&mut self, name: &str, data: &[f32]) -> Result<()> {
        let plan = &self.programs[0].plan;
        let place = self.arenas.elements(plan, persistent_storage(plan, name)?);
        if place.bytes / 4 != data.len() as u64 {
            let message = format!("takes {} elements, got {}", place.bytes / 4, data.len());
            return Err(Error::Input { name: name.to_owned(), message });
        }
        match &mut self.transfer {
            Some(transfer) => transfer
                .upload(&self.ledger, place, |range| data[range.start as usize..range.end as usize].to_vec()),
            None => Ok(()),
        }
    }

    /// The plan with this number.
    ///
    /// # Errors
    /// [`Error::Option`] if there is none.
    pub fn plan(&self, id: ProgramId) -> Result<&Plan> {
        self.known(id)?;
        Ok(&self.programs[id.0].plan)
    }

    /// Bytes of every buffer created: equal to [`Session::footprint`]'s total.
    pub fn device_bytes(&self) -> u64 {
        self.ledger.created()
    }

    /// Number of buffers created; it does not grow once the session is open.
    pub fn buffers(&self) -> usize {
        self.ledger.buffers()
    }

    /// The same bytes by purpose, as planned.
    pub fn footprint(&self) -> Footprint {
        self.footprint
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.ledger.device
    }

    /// Training steps made so far.
    pub fn steps(&self) -> u64 {
        self.clock.steps
    }

    /// Sets the number of training steps made: bias correction, schedule and dropout go on from there.
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

    /// Reads the loss of every `interval`th step only; 1, every step, is the start.
    pub fn set_loss_interval(&mut self, interval: u64) {
        self.loss_interval = interval.max(1);
    }

    /// Blocks until the device has done everything.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn wait(&self) -> Result<()> {
        self.ledger.device.wait(None)
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Raw words of an arena.
    pub(super) fn read_words(&mut self, place: Place) -> Result<Vec<u32>> {
        match &mut self.transfer {
            Some(transfer) => transfer.download(&self.ledger, place),
            None => Err(Error::Option("a session without parameters cannot be read this way".to_owned())),
        }
    }

    fn known(&self, id: ProgramId) -> Result<()> {
        let count = self.programs.len();
        if id.0 < count {
            return Ok(());
        }
        Err(Error::Option(format!("the session has {count} plans, there is no number {}", id.0)))
    }

    /// Uploads how parameters start; optimizer state starts as the zeros that a new buffer holds.
    fn upload_start(&mut self) -> Result<()> {
        let plan = &self.programs[0].plan;
        let Some(transfer) = &mut self.transfer else { return Ok(()) };
        for (i, param) in plan.graph().parameters.iter().enumerate() {
            // Parameters are the first storages, in the order of registration.
            let place = self.arenas.elements(plan, StorageId(i as u32));
            transfer.upload(&self.ledger, place, |range| param.initial(range))?;
        }
        Ok(())
    }

    /// Keeps losses that have arrived, and stops at the first that is no number.
    fn note(&mut self, arrived: Vec<(u64, Vec<f32>)>) -> Result<()> {
        for (step, loss) in arrived {
            let Some(&loss) = loss.first() else { continue };
            if !loss.is_finite() {
                return Err(Error::LossNotFinite { step, loss });
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

/// A plan for larger limits than the device's is refused before any buffer is created.
fn fits(plan: &Plan, device: &Device) -> Result<()> {
    let (planned, has) = (&plan.limits, device.limits());
    let largest_arena = plan.layout.arenas().map(|(_, bytes)| bytes).max().unwrap_or(0);
    let spans = plan.program.launches.iter().flat_map(|(launch, _)| &launch.memory);
    let largest_binding = spans.map(|span| span.bytes).max().unwrap_or(0);
    let checks =
        [("a buffer", largest_arena, has.max_buffer), ("a binding", largest_binding, has.max_binding)];
    for (what, needs, most) in checks {
        if needs > most {
            return Err(Error::Option(format!(
                "the plan for `{}` needs {what} of {needs} bytes, `{}` allows {most}; plan with `device.limits()`",
                planned.name, has.name
            )));
        }
    }
    if planned.min_subgroup > has.min_subgroup {
        return Err(Error::Option(format!(
            "the plan for `{}` counts on subgroups of {}, `{}` has {}; plan with `device.limits()`",
            planned.name, planned.min_subgroup, has.name, has.min_subgroup
        )));
    }
    Ok(())
}

fn same_parameters(first: &Plan, other: &Plan) -> Result<()> {
    let list = |plan: &Plan| -> Vec<_> {
        plan.graph().parameters.iter().map(|p| (p.name().to_owned(), p.shape())).collect()
    };
    if list(first) == list(other) {
        return Ok(());
    }
    Err(Error::Option("the plans of a session must be traced over the same parameters".to_owned()))
}
