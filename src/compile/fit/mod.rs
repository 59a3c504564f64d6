//! Fitting a step into a budget: what each way of saving memory would bring, and the cheapest that is enough.

mod levers;
mod max_batch;
mod over_budget_help;

pub use levers::{Lever, levers};
pub use max_batch::max_batch;

use super::{Activations, Offload, Plan, PlanOptions, Recompute, TrainStep};
use crate::compile::recompute::SearchEffort;
use crate::dtype::Precision;
use crate::error::Result;
use crate::limits::Limits;
use crate::progress;
use crate::units::Bytes;

/// A plan that fits its budget, and how.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The plan.
    pub plan: Plan,
    /// The options that make it.
    pub options: PlanOptions,
    /// What was changed for it, in words; empty if the plan fits as it is.
    pub changes: Vec<String>,
    /// Modelled time over that of the step as it was asked for, as a share of it.
    pub time_fraction: f64,
    /// Whether results stay the same bits.
    pub exact: bool,
}

/// The plans of a session, and what was changed of what was asked for.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plans, the training step first.
    pub plans: Vec<Plan>,
    /// What was changed, in words; empty if nothing was.
    pub changes: Vec<String>,
    /// Modelled time over that of the step as it was asked for, as a share of it.
    pub time_fraction: f64,
    /// Whether results stay the same bits.
    pub exact: bool,
}

impl From<Plan> for Planned {
    /// As it was asked for.
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
    /// The cheapest plan for this step within `budget`: as it is if it fits, else with as little recomputation as will do, or
    /// with the optimizer's state in the host's memory, or both, whichever takes least time. None of it changes a bit of any
    /// result. [`fit`] knows more ways.
    ///
    /// # Errors
    /// [`Error::OverBudget`](crate::Error::OverBudget) with the fewest bytes that recomputation reaches; and as [`TrainStep::plan`].
    pub fn fit(&self, options: &PlanOptions, budget: Bytes, limits: &Limits) -> Result<Fitted> {
        match self.try_fit(options, budget, limits)? {
            Some(fitted) => Ok(fitted),
            None => {
                let options = PlanOptions { recompute: Recompute::Auto, budget: Some(budget), ..*options };
                let smallest = self.plan_over_budget(&options, limits)?;
                Err(self.refuse(&smallest, &options, budget, limits))
            }
        }
    }

    /// [`TrainStep::fit`]; `None` if nothing fits.
    fn try_fit(&self, options: &PlanOptions, budget: Bytes, limits: &Limits) -> Result<Option<Fitted>> {
        let open = PlanOptions { budget: Some(budget), ..as_it_is(options) };
        let asked = self.plan_over_budget(&open, limits)?;
        let fitted = |plan: Plan, options: PlanOptions, changes: &[&str]| {
            let time_fraction = slowdown(&plan, &asked);
            let changes = changes.iter().map(|&change| change.to_owned()).collect();
            Fitted { plan, options, changes, time_fraction, exact: true }
        };
        let fits = |plan: &Plan| plan.footprint().total() <= budget.0;
        if fits(&asked) {
            return Ok(Some(fitted(asked.clone(), open, &[])));
        }
        let mut found = Vec::new();
        if let Some((plan, options)) = self.recomputed(options, budget, limits)? {
            found.push(fitted(plan, options, &["recompute auto"]));
        }
        let best = |found: &[Fitted]| found.iter().map(|f| f.time_fraction).fold(f64::INFINITY, f64::min);
        if !options.offload.optimizer {
            let offload = Offload { optimizer: true, ..options.offload };
            let away = PlanOptions { offload, ..open };
            let plan = self.plan_over_budget(&away, limits)?;
            // With nothing computed again it takes this long, and what is moved is never free.
            let least = (plan.work.step_s + plan.work.moved_s) / asked.work.seconds() - 1.0;
            if least < best(&found) && plan.work.moved > 0 {
                if fits(&plan) {
                    found.push(fitted(plan, away, &["offload optimizer"]));
                }
                // Where moving is enough, `rebuild` may still compute more again than it must.
                if let Some((plan, options)) = self.recomputed(&away, budget, limits)? {
                    found.push(fitted(plan, options, &["offload optimizer", "recompute auto"]));
                }
            }
        }
        found.sort_by(|a, b| a.time_fraction.total_cmp(&b.time_fraction));
        Ok(found.into_iter().next())
    }

    /// The plan with as little recomputation as will do, and its options; `None` if none fits.
    fn recomputed(
        &self,
        options: &PlanOptions,
        budget: Bytes,
        limits: &Limits,
    ) -> Result<Option<(Plan, PlanOptions)>> {
        let options = PlanOptions { recompute: Recompute::Auto, budget: Some(budget), ..*options };
        // A glance first: looking for the fastest plan takes longer.
        if !self.fits(&options, limits, SearchEffort::Few)? {
            return Ok(None);
        }
        let plan = self.plan_over_budget(&options, limits)?;
        Ok((plan.footprint().total() <= budget.0).then_some((plan, options)))
    }
}

/// The cheapest plan for a batch within `budget`. `step` traces the model for a number of samples. If recomputation and
/// offloading are enough, that is it: no bit of any result changes. Else the batch is cut into 2, 4, … 64 parts whose
/// gradients are summed, with as little of both as then will do; the fewest parts with which it fits. Batch norm then sees
/// smaller batches. If that is not enough either, the same with activations that wait in 16 bits.
///
/// # Errors
/// [`Error::OverBudget`](crate::Error::OverBudget) if nothing fits, with what each lever reaches; and as [`TrainStep::plan`].
pub fn fit(
    mut step: impl FnMut(usize) -> Result<TrainStep>,
    batch: usize,
    options: &PlanOptions,
    budget: Bytes,
    limits: &Limits,
) -> Result<Fitted> {
    let half = (options.precision == Precision::F32).then_some(Precision::F16);
    let precisions: Vec<Precision> = [options.precision].into_iter().chain(half).collect();
    let cuts: Vec<usize> = [1].into_iter().chain(parts_of(batch)).collect();
    let task = progress::task("fitting", (precisions.len() * cuts.len()) as u64);
    let whole = step(batch)?;
    let mut tried = 0;
    for precision in precisions {
        for &parts in &cuts {
            let accumulate = options.accumulate * parts as u32;
            let changed = PlanOptions { precision, accumulate, ..*options };
            let part = if parts == 1 { whole.clone() } else { step(batch / parts)? };
            if let Some(fitted) = part.try_fit(&changed, budget, limits)? {
                if (precision, parts) == (options.precision, 1) {
                    return Ok(fitted);
                }
                let mut changes = Vec::new();
                if precision != options.precision {
                    changes.push(format!("precision {}", precision.name()));
                }
                if parts > 1 {
                    changes.push(format!("accumulate {parts}"));
                }
                changes.extend(fitted.changes);
                let time_fraction = slowdown(&fitted.plan, &whole.plan(&as_it_is(options), limits)?);
                return Ok(Fitted { changes, time_fraction, exact: false, ..fitted });
            }
            tried += 1;
            task.done(tried);
        }
    }
    whole.fit(options, budget, limits)
}

/// The options without a budget, and so without what is chosen for one.
fn as_it_is(options: &PlanOptions) -> PlanOptions {
    let recompute = match options.recompute {
        Recompute::Auto => Recompute::Off,
        rule => rule,
    };
    PlanOptions { budget: None, recompute, ..*options }
}

/// Powers of two, from 2 to 64, that divide a batch.
fn parts_of(batch: usize) -> impl Iterator<Item = usize> {
    (1..=6).map(|power| 1usize << power).take_while(move |&parts| batch > 0 && batch.is_multiple_of(parts))
}

/// Modelled time of one plan over another's, as a share of it.
fn slowdown(plan: &Plan, asked: &Plan) -> f64 {
    let seconds = |plan: &Plan| plan.work.seconds();
    if seconds(asked) > 0.0 { seconds(plan) / seconds(asked) - 1.0 } else { 0.0 }
}
