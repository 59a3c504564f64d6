//! Recomputation ("activation checkpointing"): which results of the forward pass are kept for the backward pass, and which
//! are computed again. Kernels and their operands are the same both times, so are the bits; dropout draws the same mask,
//! statistics of a batch norm are kept and running ones moved once.

mod chain;
mod cost_model;
mod frontier;
mod measure;
mod offload;
mod script;
mod search;
mod select;
#[cfg(test)]
mod tests;

use super::analysis::Views;
use super::plan::Packed;
use super::{Plan, Program, STAGING_SLOTS, Settings, passes, schedule};
use crate::error::{Error, Result};
use crate::graph::{Cost, Graph, Roofline};
use crate::limits::Limits;
use cost_model::CostModel;
use script::{Retention, Writer};
use select::{Layers, Length};

use frontier::Point;
pub(super) use frontier::SearchEffort;

/// What the backward pass computes again instead of finding it in memory. Results are the same bits with any of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing but what [`PlanOptions::rebuild`](super::PlanOptions::rebuild) says.
    #[default]
    Off,
    /// Segments of so many layers keep only what they hand on. A layer is what lies between two places where a single
    /// tensor is handed on, such as a residual block; in networks without such places, what begins with a product.
    Every(u32),
    /// Segments as long as the square root of the number of layers (Chen et al. 2016).
    Sqrt,
    /// The layers of these paths, such as `layer1.0`, keep only what they hand on.
    Named(&'static [&'static str]),
    /// Results of matrix products and convolutions are kept, everything else is computed again.
    Policy,
    /// The least modelled time with which the packed plan fits [`PlanOptions::budget`](super::PlanOptions::budget).
    Auto,
}

/// What a step costs, and how much of it is computed again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Arithmetic and traffic of the step with nothing computed again, not even by `rebuild`.
    pub step: Cost,
    /// Modelled seconds of that.
    pub step_s: f64,
    /// Arithmetic and traffic of everything that runs a second time, `rebuild` included.
    pub again: Cost,
    /// Modelled seconds of that.
    pub again_s: f64,
    /// Bytes that move between the device and the host's memory because they are not kept on the device, both ways.
    pub moved: u64,
    /// Modelled seconds of that.
    pub moved_s: f64,
}

impl Work {
    /// Recomputed arithmetic, as a share of the step's.
    pub fn flops_fraction(&self) -> f64 {
        self.again.flops as f64 / (self.step.flops as f64).max(1.0)
    }

    /// Recomputed time, as a share of the step's: the modelled slowdown.
    pub fn time_fraction(&self) -> f64 {
        if self.step_s > 0.0 { self.again_s / self.step_s } else { 0.0 }
    }

    /// Modelled seconds of the whole step: computing, computing again, moving.
    pub fn seconds(&self) -> f64 {
        self.step_s + self.again_s + self.moved_s
    }

    /// Moving, as a share of the step's time with nothing moved or computed again.
    pub fn moved_fraction(&self) -> f64 {
        if self.step_s > 0.0 { self.moved_s / self.step_s } else { 0.0 }
    }

    /// With what a program brings from the host and takes there.
    pub(super) fn moving(self, program: &Program, roofline: &Roofline) -> Self {
        let moved = program.transfers.iter().map(|transfer| transfer.bytes).sum();
        Self { moved, moved_s: moved as f64 / roofline.host_bytes_per_s, ..self }
    }

    /// Of the step `bare` and of the one with operations repeated.
    pub(super) fn of(bare: &Graph, repeated: &Graph, roofline: &Roofline) -> Self {
        let once = || bare.nodes.iter().map(|node| bare.cost_once(node));
        let (step, all): (Cost, Cost) = (once().sum(), repeated.total_cost());
        let step_s = once().map(|cost| roofline.seconds(cost)).sum();
        let again =
            Cost { flops: all.flops.saturating_sub(step.flops), bytes: all.bytes.saturating_sub(step.bytes) };
        // Sums in another order differ in their last digits.
        let again_s = if again == Cost::default() { 0.0 } else { repeated.seconds(roofline) - step_s };
        Self { step, step_s, again, again_s: again_s.max(0.0), ..Self::default() }
    }
}

/// A training graph with nothing computed again, ready for plans that do. Behind its own nodes are pairs of them as one, for
/// what is computed again.
pub(super) struct RecomputePlanner {
    graph: Graph,
    model: CostModel,
}

impl RecomputePlanner {
    /// With `fuse`, functions may run as part of what is in front of them where that is computed again for their sake.
    pub(super) fn new(graph: Graph, limits: &Limits, roofline: &Roofline, fuse: bool) -> Result<Self> {
        let mut graph = passes::dealias_operands(graph, false);
        let order = schedule::schedule(&graph, &Views::of(&graph, false), true);
        let mut model = CostModel::of(&graph, &order, limits, roofline)?;
        if fuse {
            for ([first, then], both) in passes::pairs(&graph, limits.max_storage_buffers as usize) {
                model.join([first, then], &graph, &both, limits, roofline)?;
                graph.nodes.push(both);
            }
        }
        Ok(Self { graph, model })
    }

    /// What `how` drops; for `Off` and `Auto`, which are no rules, nothing.
    ///
    /// # Errors
    /// [`Error::Unknown`](crate::Error::Unknown) for a layer that is not there.
    pub(super) fn by_rule(&self, how: Recompute) -> Result<Vec<Retention>> {
        Ok(match how {
            Recompute::Off | Recompute::Auto => vec![Retention::Save; self.model.slots.len()],
            Recompute::Every(n) => select::every(&self.model, &self.graph, Length::Layers(n)),
            Recompute::Sqrt => select::every(&self.model, &self.graph, Length::Root),
            Recompute::Named(layers) => select::named(&self.model, &self.graph, layers)?,
            Recompute::Policy => select::policy(&self.model, &self.graph),
        })
    }

    /// Ways to run the step, from the fastest to the one that needs fewest bytes.
    fn frontier(&self, effort: SearchEffort) -> Vec<Point> {
        let layers = Layers::of(&self.model, &self.graph);
        frontier::frontier(&self.model, layers.as_ref(), effort)
    }

    /// The program that drops what `retention` says.
    pub(super) fn program(&self, retention: &[Retention], limits: &Limits) -> Result<Program> {
        let script = Writer::new(&self.model).write(retention).map(<[_]>::to_vec).unwrap_or_default();
        let graph = passes::rematerialize(self.graph.clone(), &script);
        let order = (0..graph.nodes.len()).collect();
        let views = Views::of(&graph, false);
        Program::assign(graph, views, order, limits, true)
    }

    /// The plan with the least recomputed time that fits `budget`; if none does, the smallest there is.
    pub(super) fn cheapest(
        &self,
        budget: u64,
        effort: SearchEffort,
        limits: &Limits,
        settings: &Settings,
    ) -> Result<Plan> {
        let points = self.frontier(effort);
        let around = STAGING_SLOTS
            * self.model.slots.iter().filter(|slot| slot.input).map(|slot| slot.bytes).sum::<u64>();
        let least = points.iter().map(|point| point.peak).min().unwrap_or(0);
        let mut smallest: Option<Packed> = None;
        for point in points {
            // What cannot fit need not be packed, but for the last, whose height is reported.
            if point.peak > least && point.peak + around > budget {
                continue;
            }
            let plan = Plan::lay_out(self.program(&point.retention, limits)?, limits, settings)?;
            let total = plan.total();
            if total <= budget {
                return plan.lower();
            }
            if smallest.as_ref().is_none_or(|smallest| total < smallest.total()) {
                smallest = Some(plan);
            }
        }
        smallest.ok_or_else(|| Error::Internal("no way to run a step".to_owned()))?.lower()
    }
}
