//! The effect of each memory optimization on its own.

use super::{
    Activations, NARROWER, Offload, PlanOptions, Recompute, Shard, TrainStep, as_it_is, parts_of,
    recomputing, slowdown,
};
use crate::compile::Plan;
use crate::dtype::{FrozenStorage, Precision, Rounding, WeightStorage};
use crate::error::Result;
use crate::limits::{Card, Limits};
use crate::units::Bytes;
use crate::{parallel, progress};

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

/// A change that leaves the batch whole.
struct Other {
    name: String,
    /// The step with the change; `None` if it is in the options.
    step: Option<TrainStep>,
    options: PlanOptions,
    exact: bool,
}

/// The changes that leave the batch whole.
fn others(whole: &TrainStep, options: &PlanOptions, budget: Bytes) -> Vec<Other> {
    let open = as_it_is(options);
    let mut others = Vec::new();
    let mut add = |name: String, options: PlanOptions, exact| {
        others.push(Other { name, step: None, options, exact });
    };
    add("recompute auto".to_owned(), recomputing(options, budget), true);
    for (name, recompute) in [("policy", Recompute::Policy), ("sqrt", Recompute::Sqrt)] {
        add(format!("recompute {name}"), PlanOptions { recompute, budget: Some(budget), ..*options }, true);
    }
    for (name, offload) in offloads(open.offload) {
        add(name.to_owned(), PlanOptions { offload, ..open }, true);
    }
    for shard in [Shard::Optimizer, Shard::Parameters] {
        if let Some(sharded) = open.sharded(shard) {
            add(format!("shard {}", shard.name()), sharded, true);
        }
    }
    if open.precision == Precision::F32 {
        for precision in NARROWER {
            add(format!("precision {}", precision.name()), PlanOptions { precision, ..open }, false);
        }
    }
    for (name, optimizer) in options.optimizer.lighter() {
        let lighter = PlanOptions { optimizer, ..open };
        if lighter.check_ranks().is_ok() {
            add(format!("optimizer {name}"), lighter, false);
        }
    }
    if !options.bit_masks {
        // A positive number that rounds to 0 in 16 bits still passes gradients with a mask.
        let exact = options.precision == Precision::F32;
        add("masks as bits".to_owned(), PlanOptions { bit_masks: true, ..open }, exact);
    }
    if options.weights == WeightStorage::F32 {
        let weights = WeightStorage::Bf16(Rounding::Stochastic);
        add(format!("weights {weights}"), PlanOptions { weights, ..open }, false);
    }
    for storage in [FrozenStorage::Int8, FrozenStorage::Nf4] {
        let step = whole.with_frozen(storage, options.weights);
        let name = format!("frozen-weights {}", storage.name());
        others.extend(step.map(|step| Other { name, step: Some(step), options: open, exact: false }));
    }
    others
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
    let others = others(&whole, options, budget);
    // Those that leave the batch whole count as one.
    let task = progress::task("ways to save memory", 1 + parts_of(batch).count() as u64);
    let with_others = || -> Vec<Result<Lever>> {
        parallel::map(others.len(), |i| {
            let Other { name, step, options, exact } = &others[i];
            let plan = step.as_ref().unwrap_or(&whole).plan_over_budget(options, limits)?;
            Ok(lever(name, &plan, *exact))
        })
    };
    let in_parts = || -> Result<Vec<Lever>> {
        let mut levers = Vec::new();
        let mut least = asked.footprint().total();
        for (i, parts) in (1..).zip(parts_of(batch)) {
            let accumulate = options.accumulate * parts as u32;
            let plan = step(batch / parts)?.plan(&PlanOptions { accumulate, ..open }, limits)?;
            levers.push(lever(&format!("accumulate {parts}"), &plan, false));
            task.done(i);
            let total = plan.footprint().total();
            let saved = least.saturating_sub(total);
            // Twice as many parts save about half as much, so all that are left save about as much as these, and their plans take longer.
            if total <= budget.0 || saved < total / 3 && total - saved > budget.0 {
                break;
            }
            least = total;
        }
        Ok(levers)
    };
    let (in_parts, with_others) = parallel::both(in_parts, with_others);
    let mut levers = in_parts?;
    levers.extend(with_others.into_iter().collect::<Result<Vec<_>>>()?);
    levers.retain(|lever| lever.saved_bytes > 0);
    levers.sort_by(|a, b| b.worth().total_cmp(&a.worth()).then_with(|| a.name.cmp(&b.name)));
    Ok(levers)
}
