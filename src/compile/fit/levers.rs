//! Ways of saving memory, each on its own.

use super::{Activations, Offload, PlanOptions, Recompute, TrainStep, as_it_is, parts_of, slowdown};
use crate::compile::Plan;
use crate::dtype::{Precision, Rounding, WeightStorage};
use crate::error::Result;
use crate::limits::Limits;
use crate::progress;
use crate::units::Bytes;

/// One way of saving memory, planned on its own.
#[derive(Clone, Debug)]
pub struct Lever {
    /// What is changed: `recompute auto`, `offload optimizer`, `precision f16`, `accumulate 4`, `optimizer sgd`.
    pub name: String,
    /// Everything that a session would create, in bytes.
    pub total_bytes: u64,
    /// All arenas together, in bytes.
    pub peak_bytes: u64,
    /// Total bytes less than without it.
    pub saved_bytes: u64,
    /// Modelled time more than without it, as a share.
    pub time_fraction: f64,
    /// Whether the results stay the same bits.
    pub exact: bool,
}

impl Lever {
    fn of(name: &str, plan: &Plan, asked: &Plan, exact: bool) -> Self {
        let total_bytes = plan.footprint().total();
        Self {
            name: name.to_owned(),
            total_bytes,
            peak_bytes: plan.peak_bytes(),
            saved_bytes: asked.footprint().total().saturating_sub(total_bytes),
            time_fraction: slowdown(plan, asked),
            exact,
        }
    }

    /// Bytes saved for each hundredth of time; a lever that costs less than a thousandth counts as costing that.
    fn worth(&self) -> f64 {
        self.saved_bytes as f64 / self.time_fraction.max(1e-3)
    }
}

/// What may still be offloaded, by name.
fn offloads(asked: Offload) -> Vec<(&'static str, Offload)> {
    let mut more = Vec::new();
    if !asked.optimizer {
        more.push(("offload optimizer", Offload { optimizer: true, ..asked }));
    }
    if asked.activations == Activations::Keep {
        more.push(("offload activations", Offload { activations: Activations::All, ..asked }));
    }
    more
}

/// What each way of saving memory would bring for a batch, the most bytes saved for its cost in time first. `step` traces
/// the model for a number of samples. Recomputation does as much as `budget` demands, or all it can.
///
/// # Errors
/// As [`TrainStep::plan`], but for the budget.
pub fn levers(
    mut step: impl FnMut(usize) -> Result<TrainStep>,
    batch: usize,
    options: &PlanOptions,
    budget: Bytes,
    limits: &Limits,
) -> Result<Vec<Lever>> {
    let whole = step(batch)?;
    let open = as_it_is(options);
    let asked = whole.plan(&open, limits)?;
    let mut levers = Vec::new();
    let lighter = options.optimizer.lighter();
    let task = progress::task("ways to save memory", (5 + parts_of(batch).count() + lighter.len()) as u64);
    for (name, recompute) in [
        ("recompute auto", Recompute::Auto),
        ("recompute policy", Recompute::Policy),
        ("recompute sqrt", Recompute::Sqrt),
    ] {
        let plan =
            whole.plan_over_budget(&PlanOptions { recompute, budget: Some(budget), ..*options }, limits)?;
        levers.push(Lever::of(name, &plan, &asked, true));
        task.done(levers.len() as u64);
    }
    for (name, offload) in offloads(open.offload) {
        let plan = whole.plan(&PlanOptions { offload, ..open }, limits)?;
        levers.push(Lever::of(name, &plan, &asked, true));
        task.done(levers.len() as u64);
    }
    if open.precision == Precision::F32 {
        let plan = whole.plan(&PlanOptions { precision: Precision::F16, ..open }, limits)?;
        levers.push(Lever::of("precision f16", &plan, &asked, false));
    }
    for parts in parts_of(batch) {
        let accumulate = options.accumulate * parts as u32;
        let plan = step(batch / parts)?.plan(&PlanOptions { accumulate, ..open }, limits)?;
        levers.push(Lever::of(&format!("accumulate {parts}"), &plan, &asked, false));
        task.done(levers.len() as u64);
        if plan.footprint().total() <= budget.0 {
            break;
        }
    }
    for (name, optimizer) in lighter {
        let plan = whole.plan(&PlanOptions { optimizer, ..open }, limits)?;
        levers.push(Lever::of(&format!("optimizer {name}"), &plan, &asked, false));
    }
    if !options.bit_masks {
        let plan = whole.plan(&PlanOptions { bit_masks: true, ..open }, limits)?;
        // A number that 16 bits round to 0 lets gradients pass all the same.
        let exact = options.precision == Precision::F32;
        levers.push(Lever::of("masks as bits", &plan, &asked, exact));
    }
    if options.weights == WeightStorage::F32 {
        let weights = WeightStorage::Bf16(Rounding::Stochastic);
        let plan = whole.plan(&PlanOptions { weights, ..open }, limits)?;
        levers.push(Lever::of(&format!("weights {weights}"), &plan, &asked, false));
    }
    levers.retain(|lever| lever.saved_bytes > 0);
    levers.sort_by(|a, b| b.worth().total_cmp(&a.worth()).then_with(|| a.name.cmp(&b.name)));
    Ok(levers)
}
