//! Fits a step into a budget: the effect of each memory optimization, and the cheapest combination that fits.

mod levers;
mod max_batch;
mod over_budget_help;

pub use levers::{Lever, levers};
pub(crate) use max_batch::max_batches;
pub use max_batch::{max_batch, max_seq};

use std::collections::BTreeMap;

use super::{Activations, Offload, Plan, PlanOptions, Recompute, Shard, TrainStep};
use crate::compile::recompute::SearchEffort;
use crate::dtype::Precision;
use crate::error::{Error, Result};
use crate::graph::{Param, Value};
use crate::limits::{Card, Limits};
use crate::progress;
use crate::units::Bytes;

/// Precisions that are proposed in place of `f32`, the most exact first.
const NARROWER: [Precision; 3] = [Precision::F16, Precision::Int8, Precision::Int4];

/// Parts of a batch that differ in what is alive: the first one, those between, and the last one. More parts have no higher peak.
const DIFFERENT: u32 = 3;

/// A plan that fits its budget, and the changes made to fit it.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The plan.
    pub plan: Plan,
    /// The options that produce it.
    pub options: PlanOptions,
    /// The changes, in words; empty if the plan fits as requested.
    pub changes: Vec<String>,
    /// Modelled slowdown relative to the requested step, as a fraction of its time.
    pub time_fraction: f64,
    /// Whether results stay bitwise identical.
    pub exact: bool,
}

/// The plans of a session, and the changes made to the requested options.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plans, the training step first.
    pub plans: Vec<Plan>,
    /// The changes, in words; empty if there are none.
    pub changes: Vec<String>,
    /// Modelled slowdown relative to the requested step, as a fraction of its time.
    pub time_fraction: f64,
    /// Whether results stay bitwise identical.
    pub exact: bool,
}

impl From<Plan> for Planned {
    /// The plan as requested, without changes.
    fn from(plan: Plan) -> Self {
        Self { plans: vec![plan], changes: Vec::new(), time_fraction: 0.0, exact: true }
    }
}

impl From<Fitted> for Planned {
    fn from(fitted: Fitted) -> Self {
        let Fitted { plan, changes, time_fraction, exact, .. } = fitted;
        Self { plans: vec![plan], changes, time_fraction, exact }
    }
}

impl TrainStep {
    /// The cheapest plan for this step within `budget`. If the step does not fit as requested, this uses the
    /// least recomputation that fits, optimizer state in host memory, or both, whichever takes the least
    /// time; where that is not enough, activations in host memory as well. Results are bitwise identical in every
    /// case. [`fit`] has more options.
    ///
    /// # Errors
    /// [`Error::OverBudget`](crate::Error::OverBudget) with the fewest bytes that recomputation reaches;
    /// otherwise as [`TrainStep::plan`].
    pub fn fit(&self, options: &PlanOptions, budget: Bytes, limits: &Limits) -> Result<Fitted> {
        match self.find_fit(options, budget, limits)? {
            Some(fitted) => Ok(fitted),
            None => Err(self.refused(options, budget, limits)?),
        }
    }

    /// [`TrainStep::fit`]; `None` if nothing fits.
    pub(crate) fn find_fit(
        &self,
        options: &PlanOptions,
        budget: Bytes,
        limits: &Limits,
    ) -> Result<Option<Fitted>> {
        self.try_fit(options, budget, limits, SearchEffort::All)
    }

    /// The error of a step that nothing fits.
    fn refused(&self, options: &PlanOptions, budget: Bytes, limits: &Limits) -> Result<Error> {
        let options = recomputing(options, budget);
        let smallest = self.plan_over_budget(&options, limits)?;
        Ok(self.refuse(&smallest, &options, budget, limits))
    }

    /// Bytes of the weights, which stay on the device whatever else is changed.
    fn least_weights(&self, options: &PlanOptions) -> u64 {
        let graph = self.graph();
        let params: BTreeMap<&str, &Param> =
            graph.parameters.iter().map(|param| (param.name(), param)).collect();
        let bytes = |value: &Value| match params.get(&*value.name) {
            Some(param) => param.stored_as(options.weights).bytes(value.shape.numel()),
            None => value.bytes(),
        };
        graph.values.iter().filter(|value| value.class.is_persistent()).map(bytes).sum()
    }

    /// [`TrainStep::find_fit`]. With [`SearchEffort::Near`] a quick check may miss what fits.
    fn try_fit(
        &self,
        options: &PlanOptions,
        budget: Bytes,
        limits: &Limits,
        effort: SearchEffort,
    ) -> Result<Option<Fitted>> {
        let open = PlanOptions { budget: Some(budget), ..as_it_is(options) };
        let asked = self.plan_over_budget(&open, limits)?;
        let fitted = |plan: Plan, options: PlanOptions, changes: &[&str]| {
            let time_fraction = slowdown(&plan, &asked, &options.card);
            let changes = changes.iter().map(|&change| change.to_owned()).collect();
            Fitted { plan, options, changes, time_fraction, exact: true }
        };
        let fits = |plan: &Plan| plan.footprint().total() <= budget.0;
        if fits(&asked) {
            return Ok(Some(fitted(asked.clone(), open, &[])));
        }
        // Sharding costs no arithmetic and sends what would be sent anyway.
        let sharded = |shard: Shard| -> Result<Option<Fitted>> {
            let Some(options) = options.sharded(shard) else { return Ok(None) };
            let found = self.try_fit(&options, budget, limits, effort)?;
            Ok(found.map(|mut found| {
                found.changes.insert(0, format!("shard {}", shard.name()));
                found.time_fraction = slowdown(&found.plan, &asked, &options.card);
                found
            }))
        };
        if options.sharded(Shard::Optimizer).is_some() {
            return match sharded(Shard::Optimizer)? {
                None => sharded(Shard::Parameters),
                found => Ok(found),
            };
        }
        let mut found = Vec::new();
        if let Some((plan, options)) = self.recomputed(options, budget, limits, effort)? {
            found.push(fitted(plan, options, &["recompute auto"]));
        }
        let best = |found: &[Fitted]| found.iter().map(|f| f.time_fraction).fold(f64::INFINITY, f64::min);
        if !options.offload.optimizer {
            let offload = Offload { optimizer: true, ..options.offload };
            let away = PlanOptions { offload, ..open };
            let plan = self.plan_over_budget(&away, limits)?;
            // One device copies the state that has no room, and several ranks all of it.
            let least = match found.first() {
                Some(Fitted { options, .. }) if options.parallel.ranks == 1 => {
                    self.seconds_beside_state(options, limits)?
                }
                _ => plan.work.moved_s,
            };
            let least = (plan.work.step_s + least) / asked.work.seconds() - 1.0;
            if least < best(&found) && plan.work.moved > 0 {
                if fits(&plan) {
                    found.push(fitted(plan, away, &["offload optimizer"]));
                }
                // Even if offloading alone fits, `rebuild` may recompute more than necessary.
                if let Some((plan, options)) = self.recomputed(&away, budget, limits, SearchEffort::Near)? {
                    found.push(fitted(plan, options, &["offload optimizer", "recompute auto"]));
                }
            }
        }
        if found.is_empty() && options.offload.activations == Activations::Keep {
            let changes = ["offload optimizer", "offload activations", "recompute auto"];
            let asked = options.offload.optimizer;
            // State stays on the device where that fits.
            for optimizer in [false, true].into_iter().filter(|optimizer| *optimizer >= asked) {
                let offload = Offload { optimizer, activations: Activations::All };
                let away = PlanOptions { offload, ..open };
                if let Some((plan, options)) = self.recomputed(&away, budget, limits, SearchEffort::Near)? {
                    found.push(fitted(plan, options, &changes[usize::from(optimizer == asked)..]));
                    break;
                }
            }
        }
        found.sort_by(|a, b| a.time_fraction.total_cmp(&b.time_fraction));
        Ok(found.into_iter().next())
    }

    /// Whether a quick check finds that the step fits with all that [`TrainStep::try_fit`] may change.
    fn may_fit(&self, options: &PlanOptions, budget: Bytes, limits: &Limits) -> Result<bool> {
        let offload = Offload { optimizer: true, activations: Activations::All };
        let all = PlanOptions { offload, ..recomputing(options, budget) };
        // With several ranks, sharding comes first.
        Ok(options.parallel.ranks > 1 || self.fits(&all, limits, SearchEffort::Near)?)
    }

    /// The plan with the least recomputation that fits, and its options; `None` if none fits, by a search of this effort.
    fn recomputed(
        &self,
        options: &PlanOptions,
        budget: Bytes,
        limits: &Limits,
        effort: SearchEffort,
    ) -> Result<Option<(Plan, PlanOptions)>> {
        let options = recomputing(options, budget);
        // A quick check first: the search for the fastest plan takes longer.
        if effort == SearchEffort::Near && !self.fits(&options, limits, effort)? {
            return Ok(None);
        }
        let plan = self.plan_over_budget(&options, limits)?;
        Ok((plan.footprint().total() <= budget.0).then_some((plan, options)))
    }
}

/// The cheapest plan for a batch within `budget`. `step` traces the model for a number of samples. If
/// recomputation and offloading are enough, results are bitwise identical. Otherwise the batch is split into
/// 2, 4, … 64 parts with summed gradients: this uses the fewest parts that fit, with the least recomputation
/// and offloading. Batch norm then sees smaller batches. If that is not enough either, the same is tried with
/// activations stored in 16 bits.
///
/// # Errors
/// [`Error::OverBudget`](crate::Error::OverBudget) if nothing fits, with the fewest bytes that recomputation
/// reaches; otherwise as [`TrainStep::plan`].
pub fn fit(
    mut step: impl FnMut(usize) -> Result<TrainStep>,
    batch: usize,
    options: &PlanOptions,
    budget: Bytes,
    limits: &Limits,
) -> Result<Fitted> {
    let whole = step(batch)?;
    match find_fit(&whole, step, batch, options, budget, limits)? {
        Some(fitted) => Ok(fitted),
        None => Err(whole.refused(options, budget, limits)?),
    }
}

/// [`fit`]; `None` if nothing fits. `whole` is the step of the whole batch.
pub(crate) fn find_fit(
    whole: &TrainStep,
    mut step: impl FnMut(usize) -> Result<TrainStep>,
    batch: usize,
    options: &PlanOptions,
    budget: Bytes,
    limits: &Limits,
) -> Result<Option<Fitted>> {
    let half = (options.precision == Precision::F32).then_some(Precision::F16);
    let precisions: Vec<Precision> = [options.precision].into_iter().chain(half).collect();
    let cuts: Vec<usize> = [1].into_iter().chain(parts_of(batch)).collect();
    let task = progress::task("fitting", (precisions.len() * cuts.len()) as u64);
    if whole.least_weights(options) > budget.0 {
        return whole.find_fit(options, budget, limits);
    }
    let most = cuts[cuts.len() - 1];
    for (done, precision) in (0..).step_by(cuts.len()).zip(precisions) {
        let with = |parts: usize| {
            let accumulate = options.accumulate * parts as u32;
            PlanOptions { precision, accumulate, ..*options }
        };
        let mut missed = None;
        for (tried, mut parts) in (done..).zip(cuts.iter().copied()) {
            task.done(tried);
            if parts == 2 && parts < most {
                // The smallest parts need the fewest bytes.
                let all = with(most);
                let few = PlanOptions { accumulate: DIFFERENT.min(all.accumulate), ..all };
                if !step(batch / most)?.may_fit(&few, budget, limits)? {
                    break;
                }
            }
            let part = if parts == 1 { whole.clone() } else { step(batch / parts)? };
            let as_asked = (precision, parts) == (options.precision, 1);
            let effort = if as_asked { SearchEffort::All } else { SearchEffort::Near };
            let tries = as_asked || part.may_fit(&with(parts), budget, limits)?;
            let fitted = if tries { part.try_fit(&with(parts), budget, limits, effort)? } else { None };
            if let Some(mut fitted) = fitted {
                if as_asked {
                    return Ok(Some(fitted));
                }
                let fewer = parts / 2;
                let closely =
                    |part: &TrainStep| part.try_fit(&with(fewer), budget, limits, SearchEffort::All);
                if let Some(found) = missed.as_ref().map_or(Ok(None), closely)? {
                    (fitted, parts) = (found, fewer);
                }
                let mut changes = Vec::new();
                if precision != options.precision {
                    changes.push(format!("precision {}", precision.name()));
                }
                if parts > 1 {
                    changes.push(format!("accumulate {parts}"));
                }
                changes.extend(fitted.changes);
                let time_fraction =
                    slowdown(&fitted.plan, &whole.plan(&as_it_is(options), limits)?, &options.card);
                return Ok(Some(Fitted { changes, time_fraction, exact: false, ..fitted }));
            }
            // What quick checks may have missed.
            missed = (!as_asked).then_some(part);
        }
    }
    Ok(None)
}

/// The options without a budget and without recomputation chosen for a budget.
fn as_it_is(options: &PlanOptions) -> PlanOptions {
    let recompute = match options.recompute {
        Recompute::Auto => Recompute::Off,
        rule => rule,
    };
    PlanOptions { budget: None, recompute, ..*options }
}

/// The options with recomputation chosen for a budget.
fn recomputing(options: &PlanOptions, budget: Bytes) -> PlanOptions {
    PlanOptions { recompute: Recompute::Auto, budget: Some(budget), ..*options }
}

/// Powers of two, from 2 to 64, that divide a batch.
fn parts_of(batch: usize) -> impl Iterator<Item = usize> {
    (1..=6).map(|power| 1usize << power).take_while(move |&parts| batch > 0 && batch.is_multiple_of(parts))
}

/// Returns how much slower `plan` runs than `asked` by the model, as a fraction of the time of `asked`. On several ranks,
/// the times include exposed communication.
fn slowdown(plan: &Plan, asked: &Plan, card: &Card) -> f64 {
    let seconds = |plan: &Plan| match plan.parallel.ranks {
        1 => plan.work.seconds(),
        _ => plan.wire_times(card).map_or_else(|_| plan.work.seconds(), |times| times.step_s),
    };
    if seconds(asked) > 0.0 { seconds(plan) / seconds(asked) - 1.0 } else { 0.0 }
}
