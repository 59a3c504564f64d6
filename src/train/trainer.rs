//! The training loop: feed, step, evaluate.

use std::time::Duration;

use super::early_stopping::Waited;
use super::plateau::Plateau;
use super::recipe::Recipe;
use super::task::{self, Task};
use super::{Callback, Epoch, Metric, ReduceOnPlateau, StepProgress, Stop};
use crate::compile::{Forward, Parallel, Plan, PlanOptions, Recompute, TrainStep};
#[cfg(not(target_family = "wasm"))]
use crate::data::ahead;
use crate::data::{Batch, Dataset, Loader};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::exec::{Debug, OnOom, ProgramId, Refit, Session, Transport};
#[cfg(not(target_family = "wasm"))]
use crate::exec::{Tuning, tune};
use crate::maybe_async;
use crate::optim::Schedule;
use crate::report::Failure;
use crate::time::Instant;
use crate::units::Bytes;

/// Options for training a network.
#[derive(Clone, Debug, Default)]
pub struct TrainOptions {
    /// Optimizer, clipping, budget.
    pub plan: PlanOptions,
    /// Factor of the learning rate at each step.
    pub schedule: Schedule,
    /// When the learning rate falls because the metric has stopped improving.
    pub plateau: Option<ReduceOnPlateau>,
    /// Samples of a forward pass, for evaluations and [`Trainer::predict`]; `None`: as many as of a batch.
    pub eval_batch: Option<usize>,
    /// What to do when the device has too little memory, at the start or later.
    pub on_oom: OnOom,
    /// Limits on tuning, which measures the fastest kernels before training; `None` uses those of the tables. Browsers do
    /// not tune.
    #[cfg(not(target_family = "wasm"))]
    pub tune: Option<Tuning>,
}

const TRAIN: ProgramId = ProgramId(0);

/// Trains a network on batches of a data set.
pub struct Trainer {
    pub(super) session: Session,
    pub(super) loader: Loader,
    /// Samples of a forward pass.
    eval_batch: usize,
    /// Names of the forward passes, whose programs follow the training step.
    programs: Vec<String>,
    metric: Option<task::Metric>,
    measured: Option<Metric>,
    pub(super) recipe: Recipe,
    on_oom: OnOom,
    refits: Vec<Refit>,
    /// Number of refits that callbacks were notified of.
    told: usize,
    stop: Stop,
    /// Whether the run ends after this epoch.
    finished: bool,
    /// State of an [`EarlyStopping`](super::EarlyStopping).
    pub(super) waited: Option<Waited>,
    #[cfg(feature = "safetensors")]
    pub(super) schedule: Schedule,
    pub(super) reduces: Option<ReduceOnPlateau>,
    pub(super) plateau: Plateau,
    /// The best metric of the run so far, kept by a [`Checkpoint`](super::Checkpoint).
    #[cfg(feature = "safetensors")]
    pub(super) best: Option<f64>,
}

impl Trainer {
    /// Plans a training step, the forward passes and, if the last batch is smaller, a step for it, and opens
    /// a session. Every batch of the loader has the inputs that the task declares.
    ///
    /// # Errors
    /// Mistakes in the model; a plan over the budget or a device out of memory, with [`OnOom::Refit`] only if
    /// no plan fits.
    #[maybe_async]
    pub async fn new<'a>(
        device: &Device,
        task: impl Into<Task<'a>>,
        loader: Loader,
        options: &TrainOptions,
    ) -> Result<Self> {
        Self::watched(device, task, loader, options, &mut []).await
    }

    /// Like [`Trainer::new`], and notifies callbacks of an error, such as a plan over its budget or a device
    /// that refuses: a [`Monitor`](super::Monitor) with a folder for failures writes a report.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    #[maybe_async]
    pub async fn watched<'a>(
        device: &Device,
        task: impl Into<Task<'a>>,
        loader: Loader,
        options: &TrainOptions,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Self> {
        let mut largest = None;
        let opened = Self::open(device, task.into(), loader, options, &mut largest).await;
        opened.inspect_err(|error| {
            let known = Failure::of(error).with_device(device);
            let known = match &largest {
                Some(plan) => known.with_plan(plan),
                None => known,
            };
            callbacks.iter_mut().for_each(|callback| callback.on_refused(error, &known));
        })
    }

    /// Implements [`Trainer::new`]. If no session can be opened, stores the plan of the training step in
    /// `largest`, even if it is over its budget.
    #[maybe_async]
    async fn open(
        device: &Device,
        task: Task<'_>,
        loader: Loader,
        options: &TrainOptions,
        largest: &mut Option<Plan>,
    ) -> Result<Self> {
        let Task { params, loss, programs, metric } = task;
        let names: Vec<String> = programs.iter().map(|(name, _)| name.clone()).collect();
        if let Some(task::Metric { program, .. }) = &metric {
            position(&names, program)?;
        }
        let TrainOptions { plan, schedule, plateau: reduces, eval_batch, on_oom, .. } = options.clone();
        let eval_batch = eval_batch.unwrap_or(loader.batch());
        if eval_batch == 0 {
            return Err(Error::setting("eval_batch", "a batch of 0: it must be at least 1"));
        }
        reduces.map_or(Ok(()), |reduces| reduces.check())?;
        let limits = &device.target(plan.precision);
        #[cfg(not(target_family = "wasm"))]
        let limits = &match &options.tune {
            Some(tuning) => tune(device, limits, plan.precision, tuning)?,
            None => limits.clone(),
        };
        let Parallel { ranks, .. } = plan.parallel;
        if ranks > 1 && on_oom == OnOom::Refit {
            let message = format!(
                "`OnOom::Refit` on {ranks} ranks: a rank that changes its plan would leave the others; plan for the smallest \
                 device with `PlanOptions::budget`"
            );
            return Err(Error::setting("on_oom", message));
        }
        let own = plan.parallel.parts(plan.accumulate);
        let loader = if ranks > 1 { loader.parts_of_batch(&own, plan.accumulate) } else { loader };
        let trace = |samples: usize| TrainStep::trace(params, |trace| loss(trace, samples));
        // Forward passes have the shares of the training step, whatever that recomputes.
        let quick = PlanOptions { recompute: Recompute::Off, budget: None, ..plan };
        let sharded = (plan.parallel.splits_parameters() && !programs.is_empty())
            .then(|| trace(loader.batch() / plan.accumulate.max(1) as usize)?.plan(&quick, limits))
            .transpose()?;
        let forward = |(name, network): &(String, task::Network)| -> Result<Plan> {
            let forward = Forward::trace(params, name, |trace| network(trace, eval_batch))?;
            match &sharded {
                Some(train) => forward.plan_beside(train, plan.weights, limits),
                None => forward.plan_with(plan.weights, limits),
            }
        };
        let programs = programs.iter().map(forward).collect::<Result<Vec<_>>>()?;
        let sizes = [loader.batch(), loader.tail()];
        let recipe = Recipe::new(trace, sizes, programs, (plan, limits), on_oom == OnOom::Refit)?;
        let planner = &mut |within| recipe.plans(within);
        let opened = Session::open(device, planner, on_oom, Debug::default()).await;
        let (mut session, refit) = opened.inspect_err(|_| *largest = recipe.as_asked().ok())?;
        session.set_schedule(schedule.clone());
        let refits = refit.into_iter().collect();
        let (programs, measured) = (names, None);
        Ok(Self {
            session,
            loader,
            eval_batch,
            programs,
            metric,
            measured,
            recipe,
            on_oom,
            refits,
            told: 0,
            stop: Stop::default(),
            finished: false,
            waited: None,
            #[cfg(feature = "safetensors")]
            schedule,
            reduces,
            plateau: Plateau::default(),
            #[cfg(feature = "safetensors")]
            best: None,
        })
    }

    /// Connects one rank of a run on several devices ([`PlanOptions::parallel`]) with the others. The loader's batches are
    /// those of all ranks together, cut into [`PlanOptions::accumulate`] parts; each rank reads the samples of its parts,
    /// evaluates on its own, and has the losses and metrics of the whole run. [`Trainer::fit`] checks that all ranks have as many samples,
    /// the same first one, and the same batches. Files are written by rank 0 alone and read
    /// by all, on another number of ranks too.
    ///
    /// # Errors
    /// As [`Session::set_transport`].
    #[maybe_async]
    pub async fn set_transport(&mut self, transport: Box<dyn Transport>) -> Result<()> {
        self.session.set_transport(transport).await
    }

    /// Returns the number of this rank; 0 on one device.
    pub fn rank(&self) -> u32 {
        self.recipe.options().parallel.rank
    }

    /// Trains for `epochs` more epochs and, after each, evaluates on `test` if it is given. Returns the last
    /// epoch. Epochs are counted by the steps made: two calls, or a run that continues from a file
    /// ([`Trainer::load`]), train like one call. An epoch that was interrupted is finished first and counts.
    ///
    /// # Errors
    /// [`Error::LossNotFinite`]; [`Error::NotFinite`] for inputs, and for parameters at the end of the run;
    /// [`Error::DeviceLost`]; [`Error::Stopped`] (see [`Trainer::stop`]); and whatever the data or a callback
    /// returns; for `test` also as [`Trainer::evaluate`]. Files saved before stay.
    #[maybe_async]
    pub async fn fit(
        &mut self,
        epochs: u64,
        test: Option<&dyn Dataset>,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Epoch> {
        self.finished = false;
        let result = self.run_agreed(epochs, test, callbacks).await;
        if let Err(error) = &result {
            callbacks.iter_mut().for_each(|callback| callback.on_error(error, self));
        }
        callbacks.iter_mut().for_each(|callback| callback.on_end());
        self.stop.clear();
        result
    }

    #[maybe_async]
    async fn run_agreed(
        &mut self,
        epochs: u64,
        test: Option<&dyn Dataset>,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Epoch> {
        // What was loaded since the ranks were connected must be the same, too, and so must the data.
        let loader = &self.loader;
        self.session.agree_on(|| loader.description()).await?;
        callbacks.iter_mut().try_for_each(|callback| callback.on_start(self))?;
        let end = self.run_epochs(epochs, test, callbacks).await?;
        // A parameter that the last losses do not depend on can be NaN although they are finite.
        self.session.check_parameters().await?;
        Ok(end)
    }

    #[maybe_async]
    async fn run_epochs(
        &mut self,
        epochs: u64,
        test: Option<&dyn Dataset>,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Epoch> {
        let steps = self.loader.batches();
        if steps == 0 || epochs == 0 {
            return Err(Error::setting(
                "epochs",
                format!("{epochs} epochs of {steps} steps: both must be at least 1"),
            ));
        }
        if test.is_some() {
            self.metric()?;
        } else if self.reduces.is_some() {
            let message = "`TrainOptions::plateau` needs a metric: give `Trainer::fit` evaluation data";
            return Err(Error::NotReady(message.to_owned()));
        }
        let (done, mut first) = (self.session.steps() / steps as u64, self.session.steps() as usize % steps);
        let epochs = done + epochs;
        let mut rate = Rate::default();
        let mut last = None;
        let mut ahead = Some(self.loader.epoch(done, first));
        for epoch in done..epochs {
            let (mut sum, mut count, mut loss) = (0.0, 0u32, None);
            let batches = ahead.take().into_iter().flatten();
            for (i, batch) in (std::mem::take(&mut first)..).zip(batches) {
                self.check_stop().await?;
                let batch = batch?;
                self.step(&batch).await?;
                self.tell(callbacks)?;
                for (_, arrived) in self.session.losses()? {
                    sum += f64::from(arrived);
                    count += 1;
                    loss = Some(arrived);
                }
                // Of all ranks.
                let samples = self.loader.whole_of(batch.samples());
                let ranks = self.session.among_ranks();
                let (samples_per_s, waiting) = rate.after(samples, ranks.map(|(_, waited)| waited));
                let left = (epochs - epoch) * self.loader.samples() as u64 - (i * self.loader.batch()) as u64;
                let eta = left.saturating_sub(samples as u64) as f64 / samples_per_s.max(f64::MIN_POSITIVE);
                let progress = StepProgress {
                    epoch,
                    epochs,
                    step: i + 1,
                    steps,
                    loss,
                    metric: self.measured,
                    samples_per_s,
                    eta: Duration::try_from_secs_f64(eta).unwrap_or(Duration::MAX),
                    device_bytes: ranks.map_or_else(|| self.session.device_bytes(), |(bytes, _)| bytes),
                    waiting,
                };
                callbacks.iter_mut().try_for_each(|callback| callback.on_step(&progress))?;
            }
            // Prepared while the last steps and the evaluation run.
            ahead = (epoch + 1 < epochs).then(|| self.loader.epoch(epoch + 1, 0));
            // Losses still in flight belong to this epoch.
            self.session.loss().await?;
            for (_, arrived) in self.session.losses()? {
                sum += f64::from(arrived);
                count += 1;
            }
            if let Some(test) = test {
                self.measured = Some(self.evaluate(test).await?);
                self.tell(callbacks)?;
            }
            let metric = test.and(self.measured);
            let end = Epoch { epoch, loss: (sum / f64::from(count.max(1))) as f32, metric };
            if let (Some(reduces), Some(metric)) = (self.reduces, metric) {
                self.set_plateau(reduces.after(metric.value, self.plateau));
            }
            callbacks.iter_mut().try_for_each(|callback| callback.on_epoch(&end, self))?;
            last = Some(end);
            if self.finished {
                break;
            }
        }
        last.ok_or_else(|| Error::Internal("no epoch was run".to_owned()))
    }

    pub(super) fn set_plateau(&mut self, plateau: Plateau) {
        self.plateau = plateau;
        self.session.set_rate_factor(plateau.factor as f32);
    }

    /// Ends the run after this epoch: [`Trainer::fit`] returns it. For [`Callback::on_epoch`].
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns [`Error::Stopped`] where a stop is requested on any rank, once the last step is finished.
    #[maybe_async]
    async fn check_stop(&mut self) -> Result<()> {
        let requested = self.stop.is_requested();
        if !self.session.any_rank(requested)? {
            return Ok(());
        }
        self.session.wait_for_losses().await?;
        Err(Error::Stopped { steps: self.session.steps() })
    }

    /// Returns the handle that stops a run from a signal handler or another thread.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    #[maybe_async]
    async fn step(&mut self, batch: &Batch) -> Result<()> {
        self.keep_to_budget().await?;
        let tail = ProgramId(1 + self.programs.len());
        let full = self.loader.read_of(self.loader.batch());
        let program = if batch.samples() == full { TRAIN } else { tail };
        loop {
            let run = self.fed_and_run(program, batch).await;
            if !self.made_room(&run).await? {
                return run;
            }
        }
    }

    #[maybe_async]
    async fn fed_and_run(&mut self, program: ProgramId, batch: &Batch) -> Result<()> {
        self.session.feed_batch(program, batch).await?;
        self.session.run(program).await
    }

    /// With [`OnOom::Refit`], changes to smaller plans after a run that memory ran out in, and returns whether to repeat it.
    /// That is safe because a failed submit has not run.
    #[maybe_async]
    async fn made_room<T>(&mut self, run: &Result<T>) -> Result<bool> {
        match run {
            Err(error) if self.on_oom == OnOom::Refit && error.is_out_of_memory() => {
                self.refit(None, &error.to_string()).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Applies a budget that was lowered during the run, from the next step on.
    #[maybe_async]
    async fn keep_to_budget(&mut self) -> Result<()> {
        let (own, device) = (self.session.device_bytes(), self.session.device());
        match self.session.within_reach() {
            Some(room) if room < own && self.on_oom == OnOom::Refit => {
                let budget = device.budget().unwrap_or_default();
                let message =
                    format!("the device's budget is {budget}, {} in use", Bytes(device.used_bytes()));
                self.refit(Some(Bytes(room)), &message).await
            }
            _ => Ok(()),
        }
    }

    #[maybe_async]
    async fn refit(&mut self, within: Option<Bytes>, cause: &str) -> Result<()> {
        let recipe = &self.recipe;
        let refit = self.session.refit(within, cause, &mut |within| recipe.plans(within)).await?;
        self.refits.push(refit);
        Ok(())
    }

    /// Continues in at most `within` bytes, whatever [`TrainOptions::on_oom`] is, to make room for something
    /// else on the device. Parameters, optimizer state and step count are preserved; `None` returns to the
    /// requested plans.
    ///
    /// # Errors
    /// [`Error::OverBudget`] if nothing fits, and then nothing has changed; as [`Session::replan`].
    #[maybe_async]
    pub async fn refit_within(&mut self, within: Option<Bytes>) -> Result<()> {
        if within.is_some() {
            return self.refit(within, "asked for").await;
        }
        let planned = self.recipe.plans(None)?;
        self.session.replan(&planned.plans.iter().collect::<Vec<_>>()).await
    }

    /// Returns every change of plans so far, because memory ran out or because [`Trainer::refit_within`] set
    /// a limit. A change made while the session was opened comes first.
    pub fn refits(&self) -> &[Refit] {
        &self.refits
    }

    /// Notifies callbacks of refits that they have not seen.
    fn tell(&mut self, callbacks: &mut [&mut dyn Callback]) -> Result<()> {
        while let Some(refit) = self.refits.get(self.told).cloned() {
            callbacks.iter_mut().try_for_each(|callback| callback.on_refit(&refit, self))?;
            self.told += 1;
        }
        Ok(())
    }

    /// Returns the task's metric: its mean over the samples of `data`.
    ///
    /// # Errors
    /// [`Error::NotReady`] if the task has no metric; [`Error::Data`] for an empty data set, or for one whose
    /// last batch is smaller if the forward pass does not return values for each sample; as [`Trainer::fit`].
    #[maybe_async]
    pub async fn evaluate(&mut self, data: &dyn Dataset) -> Result<Metric> {
        let task::Metric { name, program, score } = self.metric()?;
        let wrong = |message: String| Error::Data { what: "evaluation data".to_owned(), message };
        if data.is_empty() {
            return Err(wrong("it has no samples".to_owned()));
        }
        let (len, step, mut sum) = (data.len(), self.eval_batch, 0.0);
        let read =
            |first: usize| data.batch(&(first..len.min(first.saturating_add(step))).collect::<Vec<_>>());
        let batches = (0..len).step_by(step).map(read);
        #[cfg(not(target_family = "wasm"))]
        ahead(batches, |batch| {
            let output = self.predict(&program, &batch).await?;
            sum += score(&output, &batch);
            Ok(())
        })?;
        // Browsers give no thread.
        #[cfg(target_family = "wasm")]
        for batch in batches {
            let batch = batch?;
            let output = self.predict(&program, &batch).await?;
            sum += score(&output, &batch);
        }
        Ok(Metric { name, value: sum / data.len() as f64 })
    }

    /// Runs a forward pass of the task and returns its output for the samples of `batch`, at most as many as
    /// in a batch of the trainer, or [`TrainOptions::eval_batch`].
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names of the forward passes; [`Error::Data`] for a larger batch, or a
    /// smaller one if the output's length is not a multiple of the trainer's batch; as [`Trainer::fit`].
    #[maybe_async]
    pub async fn predict(&mut self, program: &str, batch: &Batch) -> Result<Vec<f32>> {
        let id = ProgramId(1 + position(&self.programs, program)?);
        let (given, full) = (batch.samples(), self.eval_batch);
        let wrong = |message: String| Error::Data { what: format!("batch for `{program}`"), message };
        if given > full {
            return Err(wrong(format!("{given} samples, the trainer's forward passes have {full}")));
        }
        let padded = (given < full).then(|| batch.clone().padded(full));
        let mut output = loop {
            let read = match self.fed_and_run(id, padded.as_ref().unwrap_or(batch)).await {
                Ok(()) => self.session.output::<f32>(id, program).await,
                Err(error) => Err(error),
            };
            if !self.made_room(&read).await? {
                break read?;
            }
        };
        if given < full {
            if !output.len().is_multiple_of(full) {
                let len = output.len();
                return Err(wrong(format!(
                    "{given} of {full} samples, but {len} outputs are not some per sample"
                )));
            }
            output.truncate(output.len() / full * given);
        }
        Ok(output)
    }

    /// Returns the program of a forward pass in [`Trainer::session`].
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names of the forward passes.
    pub fn program(&self, name: &str) -> Result<ProgramId> {
        Ok(ProgramId(1 + position(&self.programs, name)?))
    }

    fn metric(&self) -> Result<task::Metric> {
        self.metric.clone().ok_or_else(|| {
            Error::NotReady("evaluation without a metric: the task has none (`Task::metric`)".to_owned())
        })
    }

    /// Returns the session, to read, save and load parameters.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }
}

/// Samples per second, and waiting for other ranks, since the first step, whose warm-up makes it unrepresentative.
#[derive(Default)]
struct Rate {
    since: Option<(Instant, Duration)>,
    samples: usize,
}

impl Rate {
    /// Returns the rate after some more samples and, with the time `waited` for other ranks so far, its share.
    fn after(&mut self, samples: usize, waited: Option<Duration>) -> (f64, Option<f64>) {
        let now = waited.unwrap_or_default();
        let Some((since, before)) = self.since else {
            self.since = Some((Instant::now(), now));
            return (0.0, waited.map(|_| 0.0));
        };
        self.samples += samples;
        let seconds = since.elapsed().as_secs_f64();
        (self.samples as f64 / seconds, waited.map(|_| (now - before).as_secs_f64() / seconds))
    }
}

fn position(names: &[String], name: &str) -> Result<usize> {
    names.iter().position(|other| other == name).ok_or_else(|| Error::Unknown {
        kind: "program",
        name: name.to_owned(),
        known: names.to_vec(),
    })
}
