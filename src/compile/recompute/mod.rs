//! Recomputation (activation checkpointing): selects which forward results are kept for the backward pass and
//! which are recomputed. Recomputation runs the same kernels on the same operands, so results are bitwise
//! identical. Dropout draws the same mask; statistics of a batch norm are kept, and running statistics are
//! updated once.

mod certificate;
mod chain;
mod change;
mod cost_model;
mod frontier;
mod heights;
mod offload;
mod script;
mod search;
mod select;
#[cfg(test)]
mod tests;
mod timeline;
mod uses;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::analysis::Views;
use super::passes::Gathers;
use super::plan::Packed;
use super::storage::{PARAMS_SLOT, TRANSFER_BYTES, offload_buffers};
use super::{Plan, Program, STAGING_SLOTS, Settings, passes, schedule};
use crate::error::{Error, Result};
use crate::graph::{Cost, Graph, Node, Value};
use crate::kernels;
use crate::limits::{Card, Limits};
use crate::memory::planner::Effort;
use crate::parallel;
use cost_model::CostModel;
use script::{Retention, Writer};
use select::Length;
use timeline::Timeline;

pub(super) use frontier::SearchEffort;
use frontier::{Frontier, Point};

/// Which results the backward pass recomputes instead of keeping them in memory. Results are bitwise identical with every choice,
/// except where `Auto` stores fewer activations in 8 or 4 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing, except for [`PlanOptions::rebuild`](super::PlanOptions::rebuild).
    #[default]
    Off,
    /// Segments of this many layers keep only their outputs. A layer lies between two points where a single tensor is
    /// passed on, whole or in parts, such as a residual block; layers whose paths begin with the same number, such as
    /// attention and perceptron in `h.3` of a transformer, are one. In networks without such points, each matrix
    /// product or convolution starts a layer.
    Every(u32),
    /// Segments of √n layers, for a network of n layers (Chen et al. 2016), where the halves of a transformer's block count
    /// as layers.
    Sqrt,
    /// The layers with these paths, such as `layer1.0`, keep only their outputs.
    Named(&'static [&'static str]),
    /// Results of matrix products and convolutions are kept; everything else is recomputed.
    Policy,
    /// Minimizes the modelled time, subject to the packed plan fitting
    /// [`PlanOptions::budget`](super::PlanOptions::budget). On one device, activations that may be in 8 or 4 bits are stored so only where
    /// that is faster than to recompute them from 16 ([`Plan::coded`](super::Plan::coded)).
    Auto,
}

/// Modelled cost of a step and of its recomputation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Arithmetic and memory traffic of the step, excluding all recomputation, also that of `rebuild`.
    pub step: Cost,
    /// Modelled time of `step`, in seconds.
    pub step_s: f64,
    /// Arithmetic and memory traffic of all recomputation, including that of `rebuild`.
    pub again: Cost,
    /// Modelled time of `again`, in seconds.
    pub again_s: f64,
    /// Bytes copied between the device and host memory for offloaded tensors, in both directions.
    pub moved: u64,
    /// Modelled time of these copies, in seconds.
    pub moved_s: f64,
}

impl Work {
    /// Recomputed arithmetic, as a fraction of the step's.
    pub fn flops_fraction(&self) -> f64 {
        self.again.flops as f64 / (self.step.flops as f64).max(1.0)
    }

    /// Recomputation time, as a fraction of the step's: the modelled slowdown.
    pub fn time_fraction(&self) -> f64 {
        if self.step_s > 0.0 { self.again_s / self.step_s } else { 0.0 }
    }

    /// Modelled time of the whole step, in seconds: computation, recomputation and copies.
    pub fn seconds(&self) -> f64 {
        self.step_s + self.again_s + self.moved_s
    }

    /// Copy time, as a fraction of the step's time without copies and recomputation.
    pub fn moved_fraction(&self) -> f64 {
        if self.step_s > 0.0 { self.moved_s / self.step_s } else { 0.0 }
    }

    /// The cost of the step `bare`, and of the recomputation and the copies to host memory in its plan.
    pub(super) fn of(bare: &Graph, plan: &Plan, limits: &Limits, card: &Card) -> Result<Self> {
        Ok(Self::repeated(bare, plan.graph(), limits, card)?.moving(&plan.program, card))
    }

    /// Adds the copies between a program's device and host memory.
    fn moving(self, program: &Program, card: &Card) -> Self {
        let moved = program.transfers.iter().map(|transfer| transfer.bytes).sum();
        Self { moved, moved_s: moved as f64 / card.host_bytes_per_s, ..self }
    }

    /// The cost of the step `bare`, and of the recomputation in `repeated`.
    pub(super) fn repeated(bare: &Graph, repeated: &Graph, limits: &Limits, card: &Card) -> Result<Self> {
        let sum = |graph: &Graph, once: bool| -> Result<(Cost, f64)> {
            let (mut all, mut all_s) = (Cost::default(), 0.0);
            for node in &graph.nodes {
                let first = once.then(|| Node { op: node.op.once(), ..node.clone() });
                let (cost, seconds) = modelled(graph, first.as_ref().unwrap_or(node), limits, card)?;
                (all, all_s) = (all + cost, all_s + seconds);
            }
            Ok((all, all_s))
        };
        let (step, all) = parallel::both(|| sum(bare, true), || sum(repeated, false));
        let ((step, step_s), (all, all_s)) = (step?, all?);
        let again =
            Cost { flops: all.flops.saturating_sub(step.flops), bytes: all.bytes.saturating_sub(step.bytes) };
        // Sums in different orders differ in their last digits.
        let again_s = if again == Cost::default() { 0.0 } else { all_s - step_s };
        Ok(Self { step, step_s, again, again_s: again_s.max(0.0), ..Self::default() })
    }
}

/// The cost of a node, and the modelled seconds of its launches.
fn modelled(graph: &Graph, node: &Node, limits: &Limits, card: &Card) -> Result<(Cost, f64)> {
    if graph.is_view(node) {
        return Ok((Cost::default(), 0.0));
    }
    let [inputs, outputs] = graph.types(node);
    let site = kernels::Site { op: &node.op, inputs: &inputs, outputs: &outputs, in_place: None, limits };
    let jobs = kernels::jobs(&site, &kernels::lower(&site)?);
    Ok((graph.cost(node), jobs.iter().map(|job| card.seconds(job)).sum()))
}

/// A training graph without recomputation, the input for plans with recomputation. After its own nodes it
/// holds fused pairs of nodes, which are used only for recomputation.
#[derive(Debug)]
pub(super) struct RecomputePlanner {
    graph: Graph,
    /// Added to the graph with its recomputation, so that repeated operations have their parameters gathered as others.
    gathers: Gathers,
    model: CostModel,
    frontier: OnceLock<Frontier>,
    known: Mutex<Known>,
}

/// An order of operations in which results may be recomputed replaces the one with the lowest peak without recomputation if it saves
/// this fraction, 1/20, where all blocks are recomputed: other choices may take a little more memory in it.
const WORTH: u64 = 20;

/// Bytes alive at once if only the results that blocks pass on are kept.
fn lowest(model: &CostModel, graph: &Graph) -> u64 {
    let rule = select::every(model, graph, Length::Blocks(1));
    Timeline::new(model, 0, &rule).now().peak
}

/// What determines a plan of a planner: the budget that fused updates may fill, the most effort of packing, and how each forward result
/// is stored.
type Key = (Option<u64>, Effort, Vec<Retention>);

fn key(settings: &Settings, retention: &[Retention]) -> Key {
    (settings.budget, settings.packing, retention.to_vec())
}

/// Bytes of the packed plan of a choice.
#[derive(Clone, Copy, Debug)]
struct Total {
    bytes: u64,
    /// No effort of the settings packs it into fewer.
    least: u64,
}

impl Total {
    /// Whether more effort decides if the plan is within `budget`.
    fn is_open(self, budget: u64) -> bool {
        self.least <= budget && budget < self.bytes
    }
}

/// The plans that were packed. The search for the smallest plan below a budget, and repeated questions about one, try the same
/// choices.
#[derive(Debug, Default)]
struct Known {
    totals: Vec<(Key, Total)>,
    /// The one that was asked for last.
    latest: Option<(Key, Packed, Total)>,
    /// The smallest one where none fitted, packed with all effort.
    smallest: Option<(Key, Packed)>,
}

/// How each forward result is stored where some of the optimizer state is in host memory.
pub(super) struct BesideState {
    pub retention: Vec<Retention>,
    /// Bytes of the state that stay on the device.
    pub stays: u64,
    /// Modelled time of recomputation and of copies.
    pub seconds: f64,
}

/// A plan, and how it stores each forward result.
struct Chosen {
    plan: Packed,
    retention: Vec<Retention>,
}

impl RecomputePlanner {
    /// With `fuse`, a function may run as the epilogue of its producer where the producer is recomputed only
    /// for that function.
    pub(super) fn new(
        graph: Graph,
        gathers: Gathers,
        limits: &Limits,
        card: &Card,
        fuse: bool,
    ) -> Result<Self> {
        let mut graph = passes::dealias_operands(graph, false);
        // Ranks gather parameters in the order of their readers, which must be the same on all of them: a schedule depends on
        // the sizes of a rank's shares.
        let free = gathers.buckets.is_empty();
        let views = Views::of(&graph, false);
        let scheduled = |recomputes| schedule::schedule(&graph, &views, recomputes);
        let (order, other) = match free {
            true => parallel::both(|| scheduled(false), || Some(scheduled(true))),
            false => (schedule::early_updates(&graph, &views), None),
        };
        let mut model = CostModel::of(&graph, &order, limits, card)?;
        if let Some(other) = other {
            let other = model.in_order(&graph, &other);
            let (saved, recomputed) = parallel::both(|| lowest(&model, &graph), || lowest(&other, &graph));
            if recomputed + recomputed / WORTH < saved {
                model = other;
            }
        }
        if fuse {
            for ([first, then], both) in passes::pairs(&graph, limits.max_storage_buffers as usize) {
                model.join([first, then], &graph, &both, limits, card)?;
                graph.nodes.push(both);
            }
        }
        Ok(Self { graph, gathers, model, frontier: OnceLock::new(), known: Mutex::default() })
    }

    /// The retention of each slot under the rule `how`. `Off` and `Auto` are not rules and drop nothing.
    ///
    /// # Errors
    /// [`Error::Unknown`](crate::Error::Unknown) for a layer that does not exist.
    pub(super) fn by_rule(&self, how: Recompute) -> Result<Vec<Retention>> {
        Ok(match how {
            Recompute::Off | Recompute::Auto => vec![Retention::Save; self.model.slots.len()],
            Recompute::Every(n) => select::every(&self.model, &self.graph, Length::Blocks(n)),
            Recompute::Sqrt => select::every(&self.model, &self.graph, Length::Root),
            Recompute::Named(layers) => select::named(&self.model, &self.graph, layers)?,
            Recompute::Policy => select::policy(&self.model, &self.graph),
        })
    }

    fn frontier(&self) -> &Frontier {
        self.frontier.get_or_init(|| Frontier::new(&self.model, &self.graph))
    }

    /// The program that keeps, recomputes and offloads results according to `retention`.
    pub(super) fn program(&self, retention: &[Retention], limits: &Limits) -> Result<Program> {
        let script = Writer::new(&self.model).write(retention).map(<[_]>::to_vec).unwrap_or_default();
        let graph = self.gathers.added_to(passes::rematerialize(self.graph.clone(), &script));
        let order = (0..graph.nodes.len()).collect();
        let views = Views::of(&graph, false);
        Program::assign(graph, views, order, limits, true)
    }

    /// Bytes that every plan of this step needs besides its tensors: persistent values, the buffers that copy
    /// them and the state in host memory, and staging buffers of inputs.
    fn around(&self) -> u64 {
        self.around_with(self.state_bytes())
    }

    /// The same if this much of the state were in host memory, and none of it on the device.
    fn around_with(&self, away: u64) -> u64 {
        let stays = self.graph.values.iter().filter(|value| value.class.is_persistent() && !value.offloaded);
        let inputs = self.model.slots.iter().filter(|slot| slot.input).map(|slot| slot.bytes).sum::<u64>();
        let stays = stays.map(Value::bytes).sum::<u64>().saturating_sub(self.gathers.elsewhere_bytes());
        let stays = stays + self.gathers.whole_bytes();
        stays + 2 * stays.min(TRANSFER_BYTES) + STAGING_SLOTS * inputs + offload_buffers(away)
    }

    /// Bytes that a budget leaves for the step's tensors.
    fn room(&self, budget: u64) -> u64 {
        budget.saturating_sub(self.around() + PARAMS_SLOT * self.model.launches())
    }

    /// What is known to fit a budget, or to come near it, and all with fewer bytes.
    fn points_within(&self, budget: u64) -> Vec<Point> {
        self.frontier().refined(&self.model, self.room(budget))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lay_out(&self, retention: &[Retention], limits: &Limits, settings: &Settings) -> Result<Packed> {
        Plan::lay_out(self.program(retention, limits)?, limits, settings)
    }

    /// The packed plan of a choice: packed fast, and with the effort of the settings if that ends far above its bound and `more` holds
    /// for it.
    fn packed_if(
        &self,
        retention: &[Retention],
        limits: &Limits,
        settings: &Settings,
        more: impl FnOnce(Total) -> bool,
    ) -> Result<Packed> {
        let key = key(settings, retention);
        let latest = match &self.known().latest {
            Some((latest, plan, total)) if *latest == key => Some((plan.clone(), *total)),
            _ => None,
        };
        let (mut plan, mut total) = match latest {
            Some(latest) => latest,
            None => {
                let fast = Settings { packing: Effort::Fast, ..settings.clone() };
                let plan = self.lay_out(retention, limits, &fast)?;
                let ends = settings.packing == Effort::Fast || plan.is_near_bound();
                let total =
                    Total { bytes: plan.total(), least: if ends { plan.total() } else { plan.least() } };
                (plan, total)
            }
        };
        if total.least < total.bytes && more(total) {
            let other = self.lay_out(retention, limits, settings)?;
            if other.total() < plan.total() {
                plan = other;
            }
            total = Total { bytes: plan.total(), least: plan.total() };
        }
        let mut known = self.known();
        known.totals.retain(|(other, _)| *other != key);
        known.totals.push((key.clone(), total));
        known.latest = Some((key, plan.clone(), total));
        Ok(plan)
    }

    /// The packed plan of a choice.
    fn packed(&self, retention: &[Retention], limits: &Limits, settings: &Settings) -> Result<Packed> {
        self.packed_if(retention, limits, settings, |_| true)
    }

    /// Bytes of a packed plan of a choice. Where it might be within `budget`, it is packed with all effort that decides this.
    fn total(
        &self,
        retention: &[Retention],
        budget: u64,
        limits: &Limits,
        settings: &Settings,
    ) -> Result<u64> {
        let key = key(settings, retention);
        let known = self.known().totals.iter().find(|(other, _)| *other == key).map(|(_, total)| *total);
        match known.filter(|total| !total.is_open(budget)) {
            Some(total) => Ok(total.bytes),
            None => Ok(self.packed_if(retention, limits, settings, |total| total.is_open(budget))?.total()),
        }
    }

    /// The first of `points` with a packed plan that fits `budget`, and the bytes of that.
    fn first_that_fits<'a>(
        &self,
        points: impl IntoIterator<Item = &'a Point>,
        budget: u64,
        limits: &Limits,
        settings: &Settings,
    ) -> Result<Option<(u64, Vec<Retention>)>> {
        let around = self.around();
        for Point { retention, .. } in points.into_iter().filter(|point| point.peak + around <= budget) {
            let total = self.total(retention, budget, limits, settings)?;
            if total <= budget {
                return Ok(Some((total, retention.clone())));
            }
        }
        Ok(None)
    }

    /// Whether [`RecomputePlanner::cheapest`] finds a plan that fits `budget`. With [`SearchEffort::Near`] it
    /// may say no where there is one.
    pub(super) fn fits(
        &self,
        budget: u64,
        effort: SearchEffort,
        limits: &Limits,
        settings: &Settings,
    ) -> Result<bool> {
        // The largest operation needs its operands and results, whatever is recomputed.
        if self.around() + self.model.floor() > budget {
            return Ok(false);
        }
        let near = self.near_that_fits(budget, limits, settings)?.is_some();
        Ok(near
            || effort == SearchEffort::All && self.chosen(budget, limits, settings)?.plan.total() <= budget)
    }

    /// [`RecomputePlanner::first_that_fits`] among the points of targets near the budget.
    fn near_that_fits(
        &self,
        budget: u64,
        limits: &Limits,
        settings: &Settings,
    ) -> Result<Option<(u64, Vec<Retention>)>> {
        for range in self.frontier().near(self.room(budget)) {
            let points = self.frontier().points(&self.model, range);
            let found = self.first_that_fits(&points, budget, limits, settings)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Modelled seconds of the step without recomputation of forward results.
    pub(super) fn step_seconds(&self) -> f64 {
        self.model.seconds()
    }

    /// A lower bound on the seconds of recomputation of every plan that fits `budget`; `None` if none does.
    pub(super) fn least_seconds(&self, budget: u64) -> Option<f64> {
        certificate::least_seconds(&self.model, budget.checked_sub(self.around())?)
    }

    /// A plan that fits `budget`, found in less time than [`RecomputePlanner::cheapest`], which may be faster. `None` also if the
    /// search misses those that fit.
    pub(super) fn near(&self, budget: u64, limits: &Limits, settings: &Settings) -> Result<Option<Plan>> {
        let Some((_, retention)) = self.near_that_fits(budget, limits, settings)? else { return Ok(None) };
        self.packed(&retention, limits, settings)?.lower().map(Some)
    }

    /// The plan with the least recomputation time that fits `budget`; if none fits, the smallest plan.
    pub(super) fn cheapest(&self, budget: u64, limits: &Limits, settings: &Settings) -> Result<Plan> {
        self.chosen(budget, limits, settings)?.plan.lower()
    }

    /// [`RecomputePlanner::cheapest`] of another rank of the same step, for this one: both must repeat the same operations.
    pub(super) fn cheapest_of(
        &self,
        other: &Self,
        budget: u64,
        limits: &Limits,
        [own, others]: [&Settings; 2],
    ) -> Result<Plan> {
        let theirs = other.chosen(budget, limits, others)?.retention;
        self.repeated((other, &theirs), limits, own)
    }

    /// The plan with a choice of another planner, whose forward results have the same names.
    pub(super) fn repeated(
        &self,
        (other, theirs): (&Self, &[Retention]),
        limits: &Limits,
        settings: &Settings,
    ) -> Result<Plan> {
        let named = other.graph.values.iter().map(|value| &*value.name).zip(theirs.iter().copied());
        let by_name: BTreeMap<&str, Retention> = named.collect();
        let of = |(slot, value): (usize, &Value)| {
            let known = by_name.get(&*value.name).filter(|_| self.model.can_drop(slot));
            known.copied().unwrap_or(Retention::Save)
        };
        let retention: Vec<Retention> = self.graph.values.iter().enumerate().map(of).collect();
        self.packed(&retention, limits, settings)?.lower()
    }

    /// Bytes of the optimizer state that is in host memory between its updates.
    pub(super) fn state_bytes(&self) -> u64 {
        self.graph.values.iter().filter(|value| value.offloaded).map(Value::bytes).sum()
    }

    /// The choice with the least modelled time of recomputation and of copies, if the bytes of `state` that have no room within `budget`
    /// are copied to the host and back.
    pub(super) fn beside_state(&self, budget: u64, state: u64, card: &Card) -> Option<BesideState> {
        let around = self.around_with(0);
        let all = self.points_within(budget).into_iter().filter_map(|Point { retention, peak, again_s }| {
            let free = budget.checked_sub(around + peak)?;
            let mut stays = free.min(state);
            // The buffers that copy the rest take room themselves, and with less room they copy a little more.
            for _ in 0..4 {
                stays = free.checked_sub(offload_buffers(state - stays))?.min(state);
            }
            let seconds = again_s + 2.0 * (state - stays) as f64 / card.host_bytes_per_s;
            Some(BesideState { retention, stays, seconds })
        });
        all.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// [`RecomputePlanner::first_that_fits`]; if none does, among the points of targets near the budget.
    fn that_fits<'a>(
        &self,
        points: impl IntoIterator<Item = &'a Point>,
        budget: u64,
        limits: &Limits,
        settings: &Settings,
    ) -> Result<Option<(u64, Vec<Retention>)>> {
        match self.first_that_fits(points, budget, limits, settings)? {
            // A point that takes more bytes alive than another may be packed into fewer: `fits` finds it.
            None => self.near_that_fits(budget, limits, settings),
            found => Ok(found),
        }
    }

    fn chosen(&self, budget: u64, limits: &Limits, settings: &Settings) -> Result<Chosen> {
        match self.that_fits(&self.points_within(budget), budget, limits, settings)? {
            Some((_, retention)) => {
                Ok(Chosen { plan: self.packed(&retention, limits, settings)?, retention })
            }
            None => self.smallest(budget, limits, settings),
        }
    }

    /// The smallest plan where none fits `budget`.
    fn smallest(&self, budget: u64, limits: &Limits, settings: &Settings) -> Result<Chosen> {
        let least = self.points_within(budget).pop();
        let mut retention =
            least.ok_or_else(|| Error::Internal("no way to run a step".to_owned()))?.retention;
        let mut total = self.total(&retention, budget, limits, settings)?;
        // What smaller budgets find: points with as many bytes alive have different numbers of dispatches. Those with the fewest bytes
        // alive come first, because the others are rarely packed into fewer.
        let fewer = |total: u64| {
            let points = self.points_within(total - 1);
            self.that_fits(points.iter().rev(), total - 1, limits, settings)
        };
        while let Some(found) = fewer(total)? {
            (total, retention) = found;
        }
        let key = key(settings, &retention);
        if let Some((known, plan)) = &self.known().smallest
            && *known == key
        {
            return Ok(Chosen { plan: plan.clone(), retention });
        }
        let mut plan = self.packed(&retention, limits, settings)?;
        if settings.packing < Effort::Balanced || plan.is_near_bound() {
            // What no quick packing fits may fit with more work.
            let balanced = Settings { packing: Effort::Balanced, ..settings.clone() };
            let more = self.lay_out(&retention, limits, &balanced)?;
            if more.total() < plan.total() {
                plan = more;
            }
        }
        self.known().smallest = Some((key, plan.clone()));
        Ok(Chosen { plan, retention })
    }
}
