//! The effect of each memory optimization on its own.

use super::{
    Activations, NARROWER, Offload, PlanOptions, Recompute, Shard, TrainStep, as_it_is, parts_of, slowdown,
};
use crate::compile::Plan;
use crate::dtype::{FrozenStorage, Precision, Rounding, WeightStorage};
use crate::error::Result;
use crate::limits::{Card, Limits};
use crate::progress;
use crate::units::Bytes;

/// One memory optimization, planned on its own.
#[derive(Clone, Debug)]
pub struct Lever {
    /// The change: `recompute auto`, `offload optimizer`, `shard optimizer`, `precision f16`, `accumulate 4`, `optimizer sgd`,
    /// `frozen-weights nf4`.
    pub name: String,
    /// Bytes of all buffers that a session would create.
    pub total_bytes: u64,
    /// Bytes of all arenas together.
    pub peak_bytes: u64,
    /// Reduction of the total bytes.
    pub saved_bytes: u64,
    /// Modelled slowdown, as a fraction of the time without the change.
    pub time_fraction: f64,
    /// Whether results stay bitwise identical.
    pub exact: bool,
}

impl Lever {
    fn of(name: &str, plan: &Plan, (asked, card): (&Plan, &Card), exact: bool) -> Self {
        let total_bytes = plan.footprint().total();
        Self {
            name: name.to_owned(),
            total_bytes,
            peak_bytes: plan.peak_bytes(),
            saved_bytes: asked.footprint().total().saturating_sub(total_bytes),
            time_fraction: slowdown(plan, asked, card),
            exact,
        }
    }

    /// Bytes saved per unit of slowdown; a slowdown below a thousandth counts as a thousandth.
    fn worth(&self) -> f64 {
        self.saved_bytes as f64 / self.time_fraction.max(1e-3)
    }
}

/// Offload options that are not enabled yet, by name.
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

/// The effect of each memory optimization on a batch, sorted by bytes saved per slowdown, highest first.
/// `step` traces the model for a number of samples. Recomputation saves as much as `budget` requires, or as
/// much as it can.
///
/// # Errors
/// As [`TrainStep::plan`], except for the budget.
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
    let lever = |name: &str, plan: &Plan, exact| Lever::of(name, plan, (&asked, &options.card), exact);
    let mut levers = Vec::new();
    let lighter = options.optimizer.lighter();
    let task = progress::task(
        "ways to save memory",
        (4 + NARROWER.len() + parts_of(batch).count() + lighter.len()) as u64,
    );
    for (name, recompute) in [
        ("recompute auto", Recompute::Auto),
        ("recompute policy", Recompute::Policy),
        ("recompute sqrt", Recompute::Sqrt),
    ] {
        let plan =
            whole.plan_over_budget(&PlanOptions { recompute, budget: Some(budget), ..*options }, limits)?;
        levers.push(lever(name, &plan, true));
        task.done(levers.len() as u64);
    }
    for (name, offload) in offloads(open.offload) {
        let plan = whole.plan(&PlanOptions { offload, ..open }, limits)?;
        levers.push(lever(name, &plan, true));
        task.done(levers.len() as u64);
    }
    for shard in [Shard::Optimizer, Shard::Parameters] {
        let Some(sharded) = open.sharded(shard) else { continue };
        let plan = whole.plan(&sharded, limits)?;
        let name = format!("shard {}", shard.name());
        levers.push(lever(&name, &plan, true));
    }
    if open.precision == Precision::F32 {
        for precision in NARROWER {
            let plan = whole.plan(&PlanOptions { precision, ..open }, limits)?;
            levers.push(lever(&format!("precision {}", precision.name()), &plan, false));
        }
    }
    let mut least = u64::MAX;
    for parts in parts_of(batch) {
        let accumulate = options.accumulate * parts as u32;
        let plan = step(batch / parts)?.plan(&PlanOptions { accumulate, ..open }, limits)?;
        levers.push(lever(&format!("accumulate {parts}"), &plan, false));
        task.done(levers.len() as u64);
        let total = plan.footprint().total();
        // More parts save less and less, and their plans take longer.
        if total <= budget.0 || total.saturating_add(total / 100) > least {
            break;
        }
        least = total;
    }
    for (name, optimizer) in lighter {
        let lighter = PlanOptions { optimizer, ..open };
        if lighter.check_ranks().is_err() {
            continue;
        }
        let plan = whole.plan(&lighter, limits)?;
        levers.push(lever(&format!("optimizer {name}"), &plan, false));
    }
    if !options.bit_masks {
        let plan = whole.plan(&PlanOptions { bit_masks: true, ..open }, limits)?;
        // A positive number that rounds to 0 in 16 bits still passes gradients with a mask.
        let exact = options.precision == Precision::F32;
        levers.push(lever("masks as bits", &plan, exact));
    }
    if options.weights == WeightStorage::F32 {
        let weights = WeightStorage::Bf16(Rounding::Stochastic);
        let plan = whole.plan(&PlanOptions { weights, ..open }, limits)?;
        levers.push(lever(&format!("weights {weights}"), &plan, false));
    }
    for storage in [FrozenStorage::Int8, FrozenStorage::Nf4] {
        let Some(smaller) = whole.with_frozen(storage, options.weights) else { continue };
        let plan = smaller.plan(&open, limits)?;
        levers.push(lever(&format!("frozen-weights {}", storage.name()), &plan, false));
    }
    levers.retain(|lever| lever.saved_bytes > 0);
    levers.sort_by(|a, b| b.worth().total_cmp(&a.worth()).then_with(|| a.name.cmp(&b.name)));
    Ok(levers)
}
