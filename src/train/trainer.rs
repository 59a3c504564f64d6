//! The training loop: feed, step, evaluate.

use std::time::{Duration, Instant};

use super::recipe::Recipe;
use super::{Callback, Epoch, StepProgress};
use crate::compile::{Forward, Plan, PlanOptions, TrainStep};
use crate::data::{Batch, Dataset, Loader};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::exec::{Debug, OnOom, ProgramId, Refit, Session, Tuning, limits_for, tune};
use crate::graph::{Params, Tensor};
use crate::models::Model;
use crate::optim::Schedule;
use crate::report::Failure;
use crate::units::Bytes;

/// A network that classifies samples.
pub trait Classifier {
    /// Returns its parameters.
    fn params(&self) -> &Params;

    /// Returns the logits `[batch, classes]` of `x [batch, sample_len]`.
    fn logits(&self, x: &Tensor) -> Tensor;
}

impl Classifier for Model {
    fn params(&self) -> &Params {
        self.params()
    }

    fn logits(&self, x: &Tensor) -> Tensor {
        self.logits(x)
    }
}

/// Options for training a network.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainOptions {
    /// Optimizer, clipping, budget.
    pub plan: PlanOptions,
    /// Factor of the learning rate at each step.
    pub schedule: Schedule,
    /// What to do when the device has too little memory, at the start or later.
    pub on_oom: OnOom,
    /// Limits on tuning, which measures the fastest kernels before training; `None` uses those of the tables.
    pub tune: Option<Tuning>,
}

const TRAIN: ProgramId = ProgramId(0);
const EVALUATE: ProgramId = ProgramId(1);
const TAIL: ProgramId = ProgramId(2);

/// Trains a classifier on batches of a data set.
pub struct Trainer {
    session: Session,
    loader: Loader,
    accuracy: Option<f64>,
    recipe: Recipe,
    on_oom: OnOom,
    refits: Vec<Refit>,
    /// Number of refits that callbacks were notified of.
    told: usize,
}

impl Trainer {
    /// Plans a training step, an evaluation and, if the last batch is smaller, a step for it, and opens a
    /// session.
    ///
    /// # Errors
    /// Mistakes in the model; a plan over the budget or a device out of memory, with [`OnOom::Refit`] only if
    /// no plan fits.
    pub fn new(
        device: &Device,
        network: &impl Classifier,
        loader: Loader,
        options: &TrainOptions,
    ) -> Result<Self> {
        Self::watched(device, network, loader, options, &mut [])
    }

    /// Like [`Trainer::new`], and notifies callbacks of an error, such as a plan over its budget or a device
    /// that refuses: a [`Monitor`](super::Monitor) with a folder for failures writes a report.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn watched(
        device: &Device,
        network: &impl Classifier,
        loader: Loader,
        options: &TrainOptions,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Self> {
        let mut largest = None;
        Self::open(device, network, loader, options, &mut largest).inspect_err(|error| {
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
    fn open(
        device: &Device,
        network: &impl Classifier,
        loader: Loader,
        options: &TrainOptions,
        largest: &mut Option<Plan>,
    ) -> Result<Self> {
        let (len, classes) = (loader.data().sample_len(), loader.data().classes() as u32);
        let trace = |batch: usize| -> Result<TrainStep> {
            TrainStep::trace(network.params(), |trace| {
                let x = trace.input("x", [batch, len]);
                let y = trace.labels("y", [batch], classes);
                network.logits(&x).cross_entropy(&y)
            })
        };
        let forward = Forward::trace(network.params(), "logits", |trace| {
            network.logits(&trace.input("x", [loader.batch(), len]))
        })?;
        let TrainOptions { plan, schedule, on_oom, tune: tuning } = *options;
        let limits = limits_for(device, plan.precision);
        let limits = &match tuning {
            Some(tuning) => tune(device, &limits, plan.precision, &tuning)?,
            None => limits,
        };
        let sizes = [loader.batch(), loader.tail()];
        let evaluation = forward.plan_with(plan.weights, limits)?;
        let recipe = Recipe::new(trace, sizes, evaluation, (plan, limits), on_oom == OnOom::Refit)?;
        let planner = &mut |within| recipe.plans(within);
        let (mut session, refit) = Session::open(device, planner, on_oom, Debug::default())
            .inspect_err(|_| *largest = recipe.as_asked().ok())?;
        session.set_schedule(schedule);
        let refits = refit.into_iter().collect();
        Ok(Self { session, loader, accuracy: None, recipe, on_oom, refits, told: 0 })
    }

    /// Trains for `epochs` epochs and, after each, evaluates on `test` if it is given. Returns the last
    /// epoch.
    ///
    /// # Errors
    /// [`Error::LossNotFinite`], [`Error::DeviceLost`], and whatever a callback returns. Files saved before
    /// stay.
    pub fn fit(
        &mut self,
        epochs: u64,
        test: Option<&dyn Dataset>,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Epoch> {
        let result = self.run_epochs(epochs, test, callbacks);
        if let Err(error) = &result {
            callbacks.iter_mut().for_each(|callback| callback.on_error(error, &mut self.session));
        }
        callbacks.iter_mut().for_each(|callback| callback.on_end());
        result
    }

    fn run_epochs(
        &mut self,
        epochs: u64,
        test: Option<&dyn Dataset>,
        callbacks: &mut [&mut dyn Callback],
    ) -> Result<Epoch> {
        let steps = self.loader.batches();
        let mut rate = Rate::default();
        let mut last = None;
        for epoch in 0..epochs {
            let (mut sum, mut count, mut loss) = (0.0, 0u32, None);
            for (i, batch) in self.loader.epoch(epoch).enumerate() {
                self.step(&batch)?;
                self.tell(callbacks)?;
                for (_, arrived) in self.session.losses()? {
                    sum += f64::from(arrived);
                    count += 1;
                    loss = Some(arrived);
                }
                let samples_per_s = rate.after(batch.len());
                let left =
                    (epochs - epoch) * self.loader.data().len() as u64 - (i * self.loader.batch()) as u64;
                let eta =
                    left.saturating_sub(batch.len() as u64) as f64 / samples_per_s.max(f64::MIN_POSITIVE);
                let progress = StepProgress {
                    epoch,
                    epochs,
                    step: i + 1,
                    steps,
                    loss,
                    accuracy: self.accuracy,
                    samples_per_s,
                    eta: Duration::try_from_secs_f64(eta).unwrap_or(Duration::MAX),
                    device_bytes: self.session.device_bytes(),
                };
                callbacks.iter_mut().try_for_each(|callback| callback.on_step(&progress))?;
            }
            // Losses still in flight belong to this epoch.
            self.session.loss()?;
            for (_, arrived) in self.session.losses()? {
                sum += f64::from(arrived);
                count += 1;
            }
            if let Some(test) = test {
                self.accuracy = Some(self.evaluate(test)?);
                self.tell(callbacks)?;
            }
            let end = Epoch { epoch, loss: (sum / f64::from(count.max(1))) as f32, accuracy: self.accuracy };
            callbacks.iter_mut().try_for_each(|callback| callback.on_epoch(&end, &mut self.session))?;
            last = Some(end);
        }
        last.ok_or_else(|| Error::Option("0 epochs: it must be at least 1".to_owned()))
    }

    fn step(&mut self, batch: &Batch) -> Result<()> {
        self.keep_to_budget()?;
        let program = if batch.len() == self.loader.batch() { TRAIN } else { TAIL };
        self.persist(|session| {
            session.feed_to(program, "x", &batch.x)?;
            session.feed_to(program, "y", &batch.y)?;
            session.run(program)
        })
    }

    /// Calls `run`; with [`OnOom::Refit`], repeats it with smaller plans for as long as memory runs out. This
    /// is safe because a failed submit has not run.
    fn persist<T>(&mut self, mut run: impl FnMut(&mut Session) -> Result<T>) -> Result<T> {
        loop {
            match run(&mut self.session) {
                Err(error) if self.on_oom == OnOom::Refit && error.is_out_of_memory() => {
                    self.refit(None, &error)?;
                }
                other => return other,
            }
        }
    }

    /// Applies a budget that was lowered during the run, from the next step on.
    fn keep_to_budget(&mut self) -> Result<()> {
        let (own, device) = (self.session.device_bytes(), self.session.device());
        match self.session.within_reach() {
            Some(room) if room < own && self.on_oom == OnOom::Refit => {
                let budget = device.budget().unwrap_or_default();
                let message =
                    format!("the device's budget is {budget}, {} in use", Bytes(device.used_bytes()));
                self.refit(Some(Bytes(room)), &Error::Option(message))
            }
            _ => Ok(()),
        }
    }

    fn refit(&mut self, within: Option<Bytes>, cause: &Error) -> Result<()> {
        let recipe = &self.recipe;
        let refit = self.session.refit(within, cause, &mut |within| recipe.plans(within))?;
        self.refits.push(refit);
        Ok(())
    }

    /// Continues in at most `within` bytes, whatever [`TrainOptions::on_oom`] is, to make room for something
    /// else on the device. Parameters, optimizer state and step count are preserved; `None` returns to the
    /// requested plans.
    ///
    /// # Errors
    /// [`Error::OverBudget`] if nothing fits, and then nothing has changed; as [`Session::replan`].
    pub fn refit_within(&mut self, within: Option<Bytes>) -> Result<()> {
        let cause = Error::Option("asked for".to_owned());
        if within.is_some() {
            return self.refit(within, &cause);
        }
        let planned = self.recipe.plans(None)?;
        self.session.replan(&planned.plans.iter().collect::<Vec<_>>())
    }

    /// Returns every change of plans so far, because memory ran out or because [`Trainer::refit_within`] set
    /// a limit. A change made while the session was opened comes first.
    pub fn refits(&self) -> &[Refit] {
        &self.refits
    }

    /// Notifies callbacks of refits that they have not seen.
    fn tell(&mut self, callbacks: &mut [&mut dyn Callback]) -> Result<()> {
        while let Some(refit) = self.refits.get(self.told) {
            callbacks.iter_mut().try_for_each(|callback| callback.on_refit(refit, &mut self.session))?;
            self.told += 1;
        }
        Ok(())
    }

    /// Returns the accuracy: the fraction of samples, in [0, 1], whose class gets the largest logit.
    ///
    /// # Errors
    /// [`Error::Data`] for an empty data set or samples of another length; [`Error::DeviceLost`].
    pub fn evaluate(&mut self, data: &dyn Dataset) -> Result<f64> {
        let (len, batch) = (self.loader.data().sample_len(), self.loader.batch());
        if data.is_empty() || data.sample_len() != len {
            let message =
                format!("{} samples of {} numbers, the network takes {len}", data.len(), data.sample_len());
            return Err(Error::Data { what: "evaluation data".to_owned(), message });
        }
        let classes = self.loader.data().classes();
        let mut right = 0;
        let mut x = vec![0.0; batch * len];
        for first in (0..data.len()).step_by(batch) {
            // Rows past a smaller last batch hold stale data; their results are ignored.
            let rows = first..data.len().min(first + batch);
            let labels: Vec<u32> =
                rows.clone().zip(x.chunks_mut(len)).map(|(row, out)| data.read(row, out)).collect();
            let logits = self.persist(|session| {
                session.feed_to(EVALUATE, "x", &x)?;
                session.run(EVALUATE)?;
                session.output::<f32>(EVALUATE, "logits")
            })?;
            right +=
                logits.chunks(classes).zip(&labels).filter(|(row, label)| largest(row) == **label).count();
        }
        Ok(right as f64 / data.len() as f64)
    }

    /// Returns the session, to read, save and load parameters.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }
}

/// Samples per second since the first step, whose warm-up makes it unrepresentative.
#[derive(Default)]
struct Rate {
    since: Option<Instant>,
    samples: usize,
}

impl Rate {
    fn after(&mut self, samples: usize) -> f64 {
        match self.since {
            Some(since) => {
                self.samples += samples;
                self.samples as f64 / since.elapsed().as_secs_f64()
            }
            None => {
                self.since = Some(Instant::now());
                0.0
            }
        }
    }
}

fn largest(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class as u32)
}
