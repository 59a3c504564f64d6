//! The plans of a trainer's session, as requested and for fewer bytes.

use std::collections::BTreeMap;

use crate::compile::{self, Footprint, Plan, PlanOptions, Planned, Recompute, TrainStep};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::units::Bytes;

/// Traced steps, from which plans can be made at any time.
pub(super) struct Recipe {
    /// By number of samples: a part of the batch, that halved for as long as it divides evenly, and a part of the
    /// last batch.
    steps: BTreeMap<usize, TrainStep>,
    /// Samples of a part of the batch: of the whole batch without [`PlanOptions::accumulate`].
    batch: usize,
    /// Samples of a part of the last batch, if it is smaller.
    tail: Option<usize>,
    /// The forward passes of the session.
    programs: Vec<Plan>,
    options: PlanOptions,
    limits: Limits,
}

/// Maximum number of micro-batches for which steps are traced, to split a batch that does not fit.
const PARTS: usize = 64;
/// Attempts to find how much of a budget the other programs of the session leave to the training step.
const TRIES: usize = 16;

impl Recipe {
    /// Returns the options as requested.
    pub(super) fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Traces the steps needed now and, with `refits`, those that may be needed if memory runs out. `batch` and `tail`
    /// are the samples of a batch and of the smaller last batch, or 0.
    ///
    /// # Errors
    /// [`Error::Setting`] if the batches cannot be cut into parts; mistakes in the model.
    pub(super) fn new(
        trace: impl Fn(usize) -> Result<TrainStep>,
        [batch, tail]: [usize; 2],
        programs: Vec<Plan>,
        (options, limits): (PlanOptions, &Limits),
        refits: bool,
    ) -> Result<Self> {
        let parts = options.accumulate.max(1) as usize;
        if !batch.is_multiple_of(parts) || !tail.is_multiple_of(parts) {
            let last = if tail > 0 { format!(" and the last one of {tail}") } else { String::new() };
            let message = format!(
                "accumulate {parts}: it must divide the batch of {batch}{last}; a smaller last batch can be left out \
                 (`Loader::last_batch`)"
            );
            return Err(Error::setting("accumulate", message));
        }
        let (batch, tail) = (batch / parts, tail / parts);
        let mut steps = BTreeMap::from([(batch, trace(batch)?)]);
        let tail = (tail > 0).then_some(tail);
        if let Some(tail) = tail {
            steps.insert(tail, trace(tail)?);
        }
        let mut parts = 2;
        while refits && parts <= PARTS && batch.is_multiple_of(parts) {
            steps.insert(batch / parts, trace(batch / parts)?);
            parts *= 2;
        }
        Ok(Self { steps, batch, tail, programs, options, limits: limits.clone() })
    }

    /// Plans a training step, the forward passes and, if the last batch is smaller, a step for it, together
    /// at most `within`.
    ///
    /// # Errors
    /// Mistakes in the model; [`Error::OverBudget`] if nothing fits.
    pub(super) fn plans(&self, within: Option<Bytes>) -> Result<Planned> {
        match within {
            None => {
                let mut plans = vec![self.step(self.batch)?.plan(&self.options, &self.limits)?];
                plans.extend(self.programs.iter().cloned());
                if let Some(tail) = self.tail {
                    plans.push(self.step(tail)?.plan_beside(&plans[0], &self.options, &self.limits)?);
                }
                Ok(Planned { plans, changes: Vec::new(), time_fraction: 0.0, exact: true })
            }
            Some(within) => self.fitting(within),
        }
    }

    /// Plans the training step as requested, even if it exceeds its budget.
    ///
    /// # Errors
    /// Mistakes in the model.
    pub(super) fn as_asked(&self) -> Result<Plan> {
        self.step(self.batch)?.plan_over_budget(&self.options, &self.limits)
    }

    fn fitting(&self, within: Bytes) -> Result<Planned> {
        let mut room = within.0;
        for _ in 0..TRIES {
            let fitted =
                compile::fit(|batch| self.step(batch), self.batch, &self.options, Bytes(room), &self.limits);
            let fitted = fitted.map_err(|error| match error {
                Error::OverBudget { what, needed, budget, peak_at, largest, help } => {
                    // With what the other plans add.
                    let (needed, budget) = (needed + (within.0 - budget), within.0);
                    Error::OverBudget { what, needed, budget, peak_at, largest, help }
                }
                other => other,
            })?;
            let (own, options) = (fitted.plan.footprint().total(), fitted.options);
            let mut planned = Planned::from(fitted);
            planned.plans.extend(self.programs.iter().cloned());
            if let Some(tail) = self.tail {
                planned.plans.push(self.tail(tail, &planned.plans[0], &options)?);
            }
            let total = Footprint::of(&planned.plans.iter().collect::<Vec<_>>()).total();
            if total <= within.0 {
                return Ok(planned);
            }
            // The other plans add the same bytes next time, whatever the training step takes.
            room = own.saturating_sub(total - within.0);
        }
        Err(self.programs_too_large(within))
    }

    /// Plans the step for the last batch, beside the training plan `whole` with `options`, in no more bytes if possible.
    fn tail(&self, samples: usize, whole: &Plan, options: &PlanOptions) -> Result<Plan> {
        let (step, own) = (self.step(samples)?, whole.footprint().total());
        // It is not split into more micro-batches, but its state must be where the training step has it.
        let (offload, precision) = (options.offload, options.precision);
        let options = PlanOptions { budget: Some(Bytes(own)), offload, precision, ..self.options };
        if options.recompute != Recompute::Auto {
            let plan = step.plan_with(Some(whole), &options, &self.limits)?;
            if plan.footprint().total() <= own {
                return Ok(plan);
            }
        }
        let options = PlanOptions { recompute: Recompute::Auto, ..options };
        step.plan_with(Some(whole), &options, &self.limits)
    }

    fn step(&self, samples: usize) -> Result<TrainStep> {
        let known = self.steps.get(&samples).cloned();
        known.ok_or_else(|| Error::Internal(format!("no step was traced for {samples} samples")))
    }

    fn programs_too_large(&self, within: Bytes) -> Error {
        let largest = self.programs.iter().max_by_key(|plan| plan.footprint().total());
        Error::OverBudget {
            what: "the forward passes and the smaller last batch with the training step".to_owned(),
            needed: Footprint::of(&self.programs.iter().collect::<Vec<_>>()).total(),
            budget: within.0,
            peak_at: largest.map_or(String::new(), |plan| plan.peak.at.clone()),
            largest: largest.map_or(String::new(), |plan| plan.largest_at_peak(3)),
            help: "a smaller batch lowers it".to_owned(),
        }
    }
}
