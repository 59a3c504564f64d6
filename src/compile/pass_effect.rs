//! The effect of each compiler pass.

use super::auto::Extent;
use super::{Plan, PlanOptions, TrainStep, passes};
use crate::error::Result;
use crate::limits::Limits;
use crate::progress;

/// A compiler pass, and the training step after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassEffect {
    /// Name of the pass, after its file in `src/compile/passes`.
    pub name: &'static str,
    /// The option that enables it.
    pub when: &'static str,
    /// Whether results stay bitwise identical.
    pub exact: bool,
    /// Whether it ran.
    pub ran: bool,
    /// Lower bound on the bytes of all arenas for this order of operations, without the later passes. `None`
    /// if a tensor is larger than a binding until a later pass splits it.
    pub bytes: Option<u64>,
    /// Number of dispatches of a step.
    pub dispatches: Option<u64>,
}

impl TrainStep {
    /// The compiler passes in order, with the bytes and dispatches of a step after each. The first entry,
    /// `none`, is the step without any pass. The effect of [`PlanOptions::recompute`] is not included.
    ///
    /// # Errors
    /// As [`TrainStep::plan`], except for the budget.
    pub fn passes(&self, options: &PlanOptions, limits: &Limits) -> Result<Vec<PassEffect>> {
        let limits = &limits.within(options.precision);
        let task = progress::task("passes", passes::COUNT as u64);
        let after = |count: usize| -> Result<[Option<u64>; 2]> {
            let graph = self.after_passes(count, options, limits)?;
            // A tensor may be larger than a binding before it is split.
            let Ok(program) = Plan::assign(&graph, limits, &self.settings(options)) else {
                return Ok([None, None]);
            };
            Ok([Some(program.lower_bound(limits)?), Some(program.dispatches as u64)])
        };
        let [bytes, dispatches] = after(0)?;
        let first = PassEffect { name: "none", when: "always", exact: true, ran: true, bytes, dispatches };
        let mut effects = vec![first];
        let choices = self.choices(options, Extent::ALL, limits);
        for (i, pass) in passes::first(passes::COUNT).into_iter().flatten().enumerate() {
            let ran = pass.when.holds(&choices);
            let [bytes, dispatches] = match effects.last() {
                Some(last) if !ran => [last.bytes, last.dispatches],
                _ => after(i + 1)?,
            };
            let (name, when, exact) = (pass.name, pass.when.name(), pass.exact);
            effects.push(PassEffect { name, when, exact, ran, bytes, dispatches });
            task.done(i as u64 + 1);
        }
        effects.push(self.effect_of_fused_updates(options, limits, effects.last())?);
        Ok(effects)
    }

    /// The effect of the one pass that runs after scheduling.
    fn effect_of_fused_updates(
        &self,
        options: &PlanOptions,
        limits: &Limits,
        before: Option<&PassEffect>,
    ) -> Result<PassEffect> {
        let settings = self.settings(options);
        let (mut bytes, mut dispatches) = before.map_or((None, None), |last| (last.bytes, last.dispatches));
        if settings.fuse_updates && bytes.is_some() {
            let plan = Plan::compile(self.training_graph(options, limits)?, limits, &settings)?;
            bytes = Some(plan.lower_bound_bytes());
            dispatches = Some(plan.program.launches.len() as u64);
        }
        let (name, when, ran) = ("fuse_updates", "training with fuse", settings.fuse_updates);
        Ok(PassEffect { name, when, exact: true, ran, bytes, dispatches })
    }
}
