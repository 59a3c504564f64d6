//! The help in the error for a plan over its budget: options that would fit.

use super::{NARROWER, Offload, Plan, PlanOptions, Recompute, Shard, TrainStep};
use crate::compile::recompute::SearchEffort;
use crate::dtype::{FrozenStorage, Precision};
use crate::error::Error;
use crate::limits::Limits;
use crate::units::Bytes;

impl TrainStep {
    /// The error for a plan over its budget, with options that would fit.
    pub(in crate::compile) fn refuse(
        &self,
        plan: &Plan,
        options: &PlanOptions,
        budget: Bytes,
        limits: &Limits,
    ) -> Error {
        plan.over_budget(budget, "the training step", self.over_budget_help(options, limits))
    }

    /// Options that would fit the budget, formatted for an error.
    fn over_budget_help(&self, options: &PlanOptions, limits: &Limits) -> String {
        let fits = |options: PlanOptions| self.fits(&options, limits, SearchEffort::Near).unwrap_or(false);
        let recompute = Recompute::Auto;
        let mut ways = Vec::new();
        if options.recompute != recompute && fits(PlanOptions { recompute, ..*options }) {
            ways.push("`recompute: Recompute::Auto`".to_owned());
        }
        if options.precision == Precision::F32 {
            let narrower =
                NARROWER.into_iter().find(|&precision| fits(PlanOptions { precision, ..*options }));
            ways.extend(narrower.map(|precision| format!("`precision: Precision::{precision:?}`")));
        }
        let offload = Offload { optimizer: true, ..options.offload };
        if options.offload != offload && fits(PlanOptions { offload, ..*options }) {
            ways.push("`offload: Offload::OPTIMIZER`".to_owned());
        }
        for shard in [Shard::Optimizer, Shard::Parameters] {
            if options.sharded(shard).is_some_and(fits) {
                ways.push(format!("`parallel.shard: Shard::{shard:?}`"));
                break;
            }
        }
        let frozen = self.with_frozen(FrozenStorage::Nf4, options.weights);
        if frozen.is_some_and(|step| step.fits(options, limits, SearchEffort::Near).unwrap_or(false)) {
            ways.push("frozen matrices in 4 bits (`ParamGroup::storage`: `FrozenStorage::Nf4`)".to_owned());
        }
        for (name, optimizer) in options.optimizer.lighter() {
            if fits(PlanOptions { optimizer, ..*options }) {
                ways.push(format!("the optimizer `{name}`"));
            } else if fits(PlanOptions { optimizer, recompute, ..*options }) {
                ways.push(format!("the optimizer `{name}` and `Recompute::Auto`"));
            }
        }
        match &ways[..] {
            [] => "recomputation, offloading and lighter optimizers are not enough; a smaller batch lowers it, which `compile::fit` \
                   accumulates"
                .to_owned(),
            ways => format!("it fits with {}; `compile::levers` ranks what else there is", ways.join(", or ")),
        }
    }
}
