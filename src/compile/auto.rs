//! Plans of [`Recompute::Auto`]: the fastest within a budget, of all that recompute, offload, and store in fewer bits what the
//! options allow.

use std::sync::{Arc, Mutex, PoisonError};

use super::recompute::{RecomputePlanner, SearchEffort, Work};
use super::{
    Activations, Offload, Parallel, Plan, PlanOptions, Recompute, Settings, Shard, TrainStep, passes,
};
use crate::error::{Error, Result};
use crate::graph::{Class, Graph, Value};
use crate::limits::Limits;
use crate::memory::planner::Effort;
use crate::progress;
use crate::units::Bytes;

/// How much of what the options allow is done to store less on the device: [`Recompute::Auto`] may do less than all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Extent {
    /// The share of the activations that may be in 8 or 4 bits, in bytes, that is stored so; others are in 16 bits.
    pub coded: f64,
    /// The share of the trained parameters, in elements, whose optimizer state is in host memory between its updates.
    pub away: f64,
}

impl Extent {
    pub(super) const ALL: Self = Self { coded: 1.0, away: 1.0 };

    /// That of a plan of [`Recompute::Auto`].
    fn of(plan: &Plan) -> Self {
        Self { coded: plan.coded.unwrap_or(1.0), away: plan.state_away.unwrap_or(1.0) }
    }

    /// Adds it to a plan of `options`.
    pub(super) fn noted(self, mut plan: Plan, options: &PlanOptions) -> Plan {
        plan.coded = options.precision.codes().map(|_| self.coded);
        plan.state_away = options.offload.optimizer.then_some(self.away);
        plan
    }
}

/// The search for what to recompute. It does not depend on the budget, so that plans for several budgets
/// share it.
#[derive(Debug)]
struct Search {
    /// The options, without those that the search does not depend on.
    options: PlanOptions,
    extent: Extent,
    limits: Limits,
    /// The step without recomputation.
    bare: Graph,
    planner: Arc<RecomputePlanner>,
}

impl Search {
    /// Adds to a plan of this search what is known of it.
    fn described(&self, mut plan: Plan, limits: &Limits) -> Result<Plan> {
        plan.work = Work::of(&self.bare, &plan, limits, &self.options.card)?;
        Ok(self.extent.noted(plan, &self.options))
    }
}

/// The searches of a step, shared by its copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Searches(Arc<Mutex<Vec<Arc<Search>>>>);

impl Searches {
    /// How many are kept: each holds the graph, and levers and errors compare several options.
    const MOST: usize = 8;

    fn find(&self, options: &PlanOptions, extent: Extent, limits: &Limits) -> Option<Arc<Search>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |search: &&Arc<Search>| {
            search.options == *options && search.extent == extent && search.limits == *limits
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

/// Plans with some of the optimizer state in host memory are packed so often until one fits.
const PACKED: u32 = 4;

/// If a smaller share of the parameters has state in host memory, what is best with none there is tried as well.
const HARDLY: f64 = 0.05;

impl TrainStep {
    /// The fastest plan within the budget; the smallest if none fits. `away` is [`Extent::away`], if that is given.
    pub(super) fn plan_auto(
        &self,
        away: Option<f64>,
        options: &PlanOptions,
        limits: &Limits,
    ) -> Result<Plan> {
        let budget = within(options)?;
        let total = |plan: &Plan| plan.footprint().total();
        let extent = Extent { away: away.unwrap_or(1.0), ..Extent::ALL };
        let mut search = self.search(options, extent, limits)?;
        let mut plan = self.plan_of(&search, budget, options, limits)?;
        if total(&plan) <= budget {
            if let Some(fewer) = self.with_fewer_codes(&plan, budget, options, limits)? {
                search = fewer;
                plan = self.plan_of(&search, budget, options, limits)?;
            }
            if away.is_none() {
                plan = self.with_less_state_away(&search, plan, budget, options, limits)?;
            }
        }
        // Where there are more choices, a search tries fewer of each. All ranks must choose the same.
        let one = options.parallel.ranks == 1;
        if one && options.offload.activations != Activations::Keep {
            let offload = Offload { activations: Activations::Keep, ..options.offload };
            let kept = self.plan_auto(away, &PlanOptions { offload, ..*options }, limits)?;
            let over = |plan: &Plan| total(plan).saturating_sub(budget);
            if (over(&kept), kept.work.seconds()) < (over(&plan), plan.work.seconds()) {
                return Ok(kept);
            }
        }
        Ok(plan)
    }

    /// The plan of a search; all ranks repeat what is best for the [leading] one.
    fn plan_of(&self, search: &Search, budget: u64, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        let (first, settings) = (leading(options), self.quick_settings(options));
        let plan = match first.parallel.rank == options.parallel.rank {
            true => search.planner.cheapest(budget, limits, &settings)?,
            false => {
                let of_first = self.search(&first, search.extent, limits)?;
                let settings = [&settings, &self.quick_settings(&first)];
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
        let settings = self.quick_settings(options);
        let task = progress::task("activations in fewer bits", u64::from(EIGHTHS));
        for eighth in 0..EIGHTHS {
            task.done(eighth.into());
            let extent = Extent { coded: f64::from(eighth) / f64::from(EIGHTHS), ..Extent::of(all) };
            let search = self.unkept_search(options, extent, limits)?;
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

    /// Returns `all`, the plan of a search with all optimizer state in host memory that may be there, or a faster one within the budget
    /// that keeps some on the device. With several ranks it is `all`.
    fn with_less_state_away(
        &self,
        search: &Search,
        all: Plan,
        budget: u64,
        options: &PlanOptions,
        limits: &Limits,
    ) -> Result<Plan> {
        let state = search.planner.state_bytes();
        if state == 0 || options.parallel.ranks > 1 {
            return Ok(all);
        }
        let mut room = budget;
        for _ in 0..PACKED {
            let Some(found) = search.planner.beside_state(room, state, &options.card) else { break };
            if found.stays == 0 || found.seconds >= all.work.again_s + all.work.moved_s {
                break;
            }
            let wanted = state - found.stays;
            let away = wanted as f64 / state as f64;
            let fewer = self.unkept_search(options, Extent { away, ..search.extent }, limits)?;
            let choice = (&*search.planner, &*found.retention);
            let plan = fewer.planner.repeated(choice, limits, &self.quick_settings(options))?;
            let over = plan.footprint().total().saturating_sub(budget);
            if over == 0 {
                self.searches.keep(&fewer);
                let faster = |a: Plan, b: Plan| {
                    let fits = b.footprint().total() <= budget;
                    if fits && b.work.seconds() < a.work.seconds() { b } else { a }
                };
                let fastest = faster(all, fewer.described(plan, limits)?);
                if away >= HARDLY {
                    return Ok(fastest);
                }
                let none = self.search(options, Extent { away: 0.0, ..search.extent }, limits)?;
                return Ok(faster(fastest, self.plan_of(&none, budget, options, limits)?));
            }
            // Whole tensors are in host memory, which may have more than was wanted.
            room = room.saturating_sub((fewer.planner.state_bytes() + over).saturating_sub(wanted));
        }
        Ok(all)
    }

    /// The modelled seconds of recomputation and of copies, if any of the optimizer state were in host memory, by the search for `options`,
    /// with which none is. Such a plan may take a little more.
    pub(super) fn seconds_beside_state(&self, options: &PlanOptions, limits: &Limits) -> Result<f64> {
        let search = self.search(options, Extent::ALL, &limits.within(options.precision))?;
        let state = |value: &&Value| value.class == Class::Optimizer && value.bytes() >= Offload::SMALLEST;
        let state = search.bare.values.iter().filter(state).map(Value::bytes).sum();
        let found = search.planner.beside_state(within(options)?.saturating_add(state), state, &options.card);
        Ok(found.map_or(f64::INFINITY, |found| found.seconds))
    }

    /// Returns a lower bound on the modelled seconds of recomputation, and of copies of activations if they may be offloaded, of every
    /// choice of results to keep within the budget of [`Recompute::Auto`], with the order of operations, the activations in
    /// codes and the optimizer state in host memory of `plan`: how far its [`Work::again_s`] can be from the best. It counts what operations
    /// recompute while they read, which is the same with every choice. `None` if no choice fits.
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
        let search = self.search(&leading(options), Extent::of(plan), limits)?;
        let Some(least) = search.planner.least_seconds(within(options)?) else { return Ok(None) };
        let while_read = Work::repeated(&search.bare, &search.bare, limits, &options.card)?.again_s;
        Ok(Some(while_read + least))
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
        let search = self.search(options, Extent::ALL, limits)?;
        search.planner.fits(budget, effort, limits, &self.quick_settings(options))
    }

    /// The settings of plans of which a search packs many, with the most effort for each.
    fn quick_settings(&self, options: &PlanOptions) -> Settings {
        // Plans of a batch in parts have many tensors that are alike: more work gains little.
        let packing = if options.accumulate > 1 { Effort::Fast } else { Effort::Balanced };
        Settings { packing, ..self.settings(options) }
    }

    /// The search for the plans of [`Recompute::Auto`] that do as much.
    fn search(&self, options: &PlanOptions, extent: Extent, limits: &Limits) -> Result<Arc<Search>> {
        let search = self.unkept_search(options, extent, limits)?;
        self.searches.keep(&search);
        Ok(search)
    }

    /// [`TrainStep::search`] without keeping it for other budgets.
    fn unkept_search(&self, options: &PlanOptions, extent: Extent, limits: &Limits) -> Result<Arc<Search>> {
        let options = PlanOptions { budget: None, rebuild: false, ..*options };
        if let Some(search) = self.searches.find(&options, extent, limits) {
            return Ok(search);
        }
        let with = |bare: Graph, planner: Arc<RecomputePlanner>| {
            Arc::new(Search { options, extent, limits: limits.clone(), bare, planner })
        };
        if extent.away == 0.0 && options.offload.optimizer {
            // As if no state could be offloaded.
            let offload = Offload { optimizer: false, ..options.offload };
            let extent = Extent { away: 1.0, ..extent };
            let same = self.unkept_search(&PlanOptions { offload, ..options }, extent, limits)?;
            return Ok(with(same.bare.clone(), Arc::clone(&same.planner)));
        }
        let (graph, gathers) = self.before_gathers(passes::COUNT, &options, extent, limits)?;
        let bare = gathers.added_to(graph.clone());
        let mut planner = RecomputePlanner::new(graph, gathers, limits, &options.card, options.fuse)?;
        planner.may_send_away(options.offload.activations, &options.card)?;
        Ok(with(bare, Arc::new(planner)))
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
