//! Plans of [`Recompute::Auto`]: the fastest within a budget, of all that recompute, offload, and store in fewer bits what the
//! options allow.

use std::sync::{Arc, Mutex, PoisonError};

use super::recompute::{RecomputePlanner, SearchEffort, Work};
use super::{Activations, Offload, Parallel, Plan, PlanOptions, Recompute, Shard, TrainStep, passes};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::limits::Limits;
use crate::progress;
use crate::units::Bytes;

/// The search for what to recompute. It does not depend on the budget, so that plans for several budgets
/// share it.
#[derive(Debug)]
struct Search {
    /// The options, without those that the search does not depend on.
    options: PlanOptions,
    /// [`Plan::coded`], or 1.
    coded: f64,
    limits: Limits,
    /// The step without recomputation.
    bare: Graph,
    planner: RecomputePlanner,
}

impl Search {
    /// Adds to a plan of this search what is known of it: its modelled time, and the share of activations in codes.
    fn described(&self, mut plan: Plan, limits: &Limits) -> Result<Plan> {
        plan.work = Work::of(&self.bare, &plan, limits, &self.options.card)?;
        plan.coded = self.options.precision.codes().map(|_| self.coded);
        Ok(plan)
    }
}

/// The searches of a step, shared by its copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Searches(Arc<Mutex<Vec<Arc<Search>>>>);

impl Searches {
    /// How many are kept: each holds the graph, and levers and errors compare several options.
    const MOST: usize = 4;

    fn find(&self, options: &PlanOptions, coded: f64, limits: &Limits) -> Option<Arc<Search>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |search: &&Arc<Search>| {
            search.options == *options && search.coded == coded && search.limits == *limits
        };
        kept.iter().find(same).cloned()
    }

    fn keep(&self, search: &Arc<Search>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().any(|other| Arc::ptr_eq(other, search)) {
            return;
        }
        if kept.len() == Self::MOST {
            kept.remove(0);
        }
        kept.push(Arc::clone(search));
    }
}

/// Shares of the activations in 8 or 4 bits that are tried: all, and fewer by eighths.
const EIGHTHS: u32 = 8;

impl TrainStep {
    /// The fastest plan within the budget; the smallest if none fits.
    pub(super) fn plan_auto(&self, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        let budget = within(options)?;
        let total = |plan: &Plan| plan.footprint().total();
        let search = self.search(options, 1.0, limits)?;
        let mut plan = self.plan_of(&search, budget, options, limits)?;
        if total(&plan) <= budget
            && let Some(search) = self.with_fewer_codes(&plan, budget, options, limits)?
        {
            plan = self.plan_of(&search, budget, options, limits)?;
        }
        // Where there are more choices, a search tries fewer of each. All ranks must choose the same.
        let one = options.parallel.ranks == 1;
        if one && options.offload.activations != Activations::Keep {
            let offload = Offload { activations: Activations::Keep, ..options.offload };
            let kept = self.plan_auto(&PlanOptions { offload, ..*options }, limits)?;
            let over = |plan: &Plan| total(plan).saturating_sub(budget);
            if (over(&kept), kept.work.seconds()) < (over(&plan), plan.work.seconds()) {
                return Ok(kept);
            }
        }
        Ok(plan)
    }

    /// The plan of a search; all ranks repeat what is best for the [leading] one.
    fn plan_of(&self, search: &Search, budget: u64, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        let (first, settings) = (leading(options), self.settings(options));
        let plan = match first.parallel.rank == options.parallel.rank {
            true => search.planner.cheapest(budget, limits, &settings)?,
            false => {
                let of_first = self.search(&first, search.coded, limits)?;
                let settings = [&settings, &self.settings(&first)];
                search.planner.cheapest_of(&of_first.planner, budget, limits, settings)?
            }
        };
        search.described(plan, limits)
    }

    /// Searches for a plan that fits the budget, stores fewer activations in 8 or 4 bits than `all`, which stores all that may be, and
    /// takes less time. Returns the search with the fastest such plan; `None` if there is none, or if several ranks run the step: they
    /// would have to store the same activations in codes.
    fn with_fewer_codes(
        &self,
        all: &Plan,
        budget: u64,
        options: &PlanOptions,
        limits: &Limits,
    ) -> Result<Option<Arc<Search>>> {
        if options.precision.codes().is_none() || options.parallel.ranks > 1 {
            return Ok(None);
        }
        let (mut seconds, mut fastest) = (all.work.seconds(), None);
        let settings = self.settings(options);
        let task = progress::task("activations in fewer bits", u64::from(EIGHTHS));
        for eighth in 0..EIGHTHS {
            task.done(eighth.into());
            let search = self.unkept_search(options, f64::from(eighth) / f64::from(EIGHTHS), limits)?;
            let Some(again_s) = search.planner.least_seconds(budget) else { continue };
            if search.planner.step_seconds() + again_s >= seconds {
                continue;
            }
            let Some(plan) = search.planner.near(budget, limits, &settings)? else { continue };
            let found = search.described(plan, limits)?.work.seconds();
            if found < seconds {
                (seconds, fastest) = (found, Some(search));
            }
        }
        fastest.iter().for_each(|search| self.searches.keep(search));
        Ok(fastest)
    }

    /// Returns a lower bound on the modelled seconds of recomputation, and of copies of activations if they may be offloaded, of every
    /// choice of results to keep within the budget of [`Recompute::Auto`], with the order of operations and the activations in codes
    /// of `plan`: how far its [`Work::again_s`] can be from the best. `None` if no choice fits.
    ///
    /// # Errors
    /// As [`TrainStep::plan`], except for the budget.
    pub fn least_recomputation(
        &self,
        plan: &Plan,
        options: &PlanOptions,
        limits: &Limits,
    ) -> Result<Option<f64>> {
        super::plan::check_limits(limits)?;
        let limits = &limits.within(options.precision);
        let search = self.search(&leading(options), plan.coded.unwrap_or(1.0), limits)?;
        Ok(search.planner.least_seconds(within(options)?))
    }

    /// Whether some plan fits the budget. With [`SearchEffort::Near`] the search may miss a plan that fits.
    pub(super) fn fits(&self, options: &PlanOptions, limits: &Limits, effort: SearchEffort) -> Result<bool> {
        let Some(Bytes(budget)) = options.budget else { return Ok(true) };
        if options.recompute != Recompute::Auto {
            return Ok(self.plan_over_budget(options, limits)?.footprint().total() <= budget);
        }
        super::plan::check_limits(limits)?;
        let limits = &limits.within(options.precision);
        let options = &leading(options);
        let search = self.search(options, 1.0, limits)?;
        search.planner.fits(budget, effort, limits, &self.settings(options))
    }

    /// The search for the plans of [`Recompute::Auto`] with the share `coded` of activations in 8 or 4 bits.
    fn search(&self, options: &PlanOptions, coded: f64, limits: &Limits) -> Result<Arc<Search>> {
        let search = self.unkept_search(options, coded, limits)?;
        self.searches.keep(&search);
        Ok(search)
    }

    /// [`TrainStep::search`] without keeping it for other budgets.
    fn unkept_search(&self, options: &PlanOptions, coded: f64, limits: &Limits) -> Result<Arc<Search>> {
        let options = PlanOptions { budget: None, rebuild: false, ..*options };
        if let Some(search) = self.searches.find(&options, coded, limits) {
            return Ok(search);
        }
        let (graph, gathers) = self.before_gathers(passes::COUNT, &options, coded, limits)?;
        let bare = gathers.added_to(graph.clone());
        let mut planner = RecomputePlanner::new(graph, gathers, limits, &options.card, options.fuse)?;
        planner.may_send_away(options.offload.activations, &options.card)?;
        Ok(Arc::new(Search { options, coded, limits: limits.clone(), bare, planner }))
    }
}

/// The budget of [`Recompute::Auto`].
fn within(options: &PlanOptions) -> Result<u64> {
    let message = "`Recompute::Auto` fits a budget, and `PlanOptions::budget` is not set";
    options.budget.map(|Bytes(budget)| budget).ok_or_else(|| Error::setting("recompute", message))
}

/// The options of the rank that decides what is recomputed: where parameters are sharded, all ranks repeat what is best for
/// the first, which has the largest shares.
fn leading(options: &PlanOptions) -> PlanOptions {
    let parallel = options.parallel;
    let rank = if parallel.shard == Shard::Parameters { 0 } else { parallel.rank };
    PlanOptions { parallel: Parallel { rank, ..parallel }, ..*options }
}
