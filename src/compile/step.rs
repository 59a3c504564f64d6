//! What users plan: a training step, or a forward pass.

use super::passes::{self, Choices};
use super::recompute::{RecomputePlanner, SearchEffort, Work};
use super::{Activations, Offload, Plan, PlanOptions, Recompute, Settings};
use crate::autodiff::{self, Gradients};
use crate::dtype::{DType, Precision, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::{Graph, Mode, Params, Tensor, Trace, Value};
use crate::limits::{ALIGNMENT, Limits};
use crate::progress;
use crate::units::Bytes;

/// A traced model with a scalar loss: the forward half of a training step.
#[derive(Clone, Debug)]
pub struct TrainStep {
    graph: Graph,
    seed: u64,
}

impl TrainStep {
    /// Traces `model`, which returns the loss. Shapes only: no device, no data.
    ///
    /// # Errors
    /// [`Error::Trace`](crate::Error::Trace) with every mistake in the model.
    pub fn trace(params: &Params, model: impl FnOnce(&Trace) -> Tensor) -> Result<Self> {
        let graph = Trace::record(params, Mode::Train, "loss", model)?;
        Ok(Self { graph, seed: params.seed() })
    }

    /// The forward graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What each way of saving memory buys, in bytes of all arenas together.
    ///
    /// # Errors
    /// As [`TrainStep::plan`], but for the budget.
    pub fn savings(&self, options: &PlanOptions, limits: &Limits) -> Result<Savings> {
        let limits = &limits.within(options.precision);
        let (task, mut known) = (progress::task("savings", 6), 0);
        let mut bound = |[rebuild, fuse, in_place, parts, reorder]: [bool; 5]| -> Result<(u64, u64)> {
            task.done(known);
            known += 1;
            let options = PlanOptions { rebuild, fuse, ..*options };
            let program = Plan::assign(
                self.training_graph(&options, limits)?,
                limits,
                &Settings { in_place, parts, reorder, ..self.settings(&options) },
            )?;
            Ok((program.persistent_bytes() + program.naive_bytes, program.lower_bound(limits)?))
        };
        let (on, off) = (true, false);
        let (naive, lifetimes) = bound([off, off, off, off, off])?;
        Ok(Savings {
            naive,
            lifetimes,
            in_place: bound([off, off, on, off, off])?.1,
            views: bound([off, off, on, on, off])?.1,
            order: bound([off, off, on, on, on])?.1,
            rebuild: bound([options.rebuild, off, on, on, on])?.1,
            fuse: bound([options.rebuild, options.fuse, on, on, on])?.1,
        })
    }

    /// Differentiates, adds the updates and plans every byte. Takes milliseconds, with [`Recompute::Auto`] a second or two;
    /// no adapter is opened.
    ///
    /// # Errors
    /// A loss that is not a scalar, an optimizer setting out of range, a tensor that no binding covers, a plan over
    /// the budget.
    pub fn plan(&self, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        let plan = self.plan_over_budget(options, limits)?;
        match options.budget {
            Some(budget) if plan.footprint().total() > budget.0 => {
                Err(self.refuse(&plan, options, budget, limits))
            }
            _ => Ok(plan),
        }
    }

    /// [`TrainStep::plan`], whether it keeps to the budget or not: with [`Recompute::Auto`] the smallest plan if none does.
    ///
    /// # Errors
    /// As [`TrainStep::plan`], but for the budget.
    pub fn plan_over_budget(&self, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        self.plan_at(options, limits, SearchEffort::All)
    }

    /// Whether some plan keeps to the budget. With [`SearchEffort::Few`] one that does may be missed.
    pub(super) fn fits(&self, options: &PlanOptions, limits: &Limits, effort: SearchEffort) -> Result<bool> {
        let Some(Bytes(budget)) = options.budget else { return Ok(true) };
        if options.recompute == Recompute::Auto {
            // What nothing computes again may be too much by itself.
            let graph = self.training_graph(options, limits)?;
            let stays = graph.values.iter().filter(|value| value.class.is_persistent() && !value.offloaded);
            if stays.map(Value::bytes).sum::<u64>() > budget {
                return Ok(false);
            }
        }
        Ok(self.plan_at(options, limits, effort)?.footprint().total() <= budget)
    }

    fn plan_at(&self, options: &PlanOptions, limits: &Limits, effort: SearchEffort) -> Result<Plan> {
        let limits = &limits.within(options.precision);
        let settings = self.settings(options);
        // What is kept in 16 bits is chosen among what is kept at all: recomputation sees the sizes in 16 bits.
        let bare = self.training_graph(&PlanOptions { rebuild: false, ..*options }, limits)?;
        let activations = options.offload.activations;
        let mut plan = match options.recompute {
            Recompute::Off if activations == Activations::Keep => {
                Plan::compile(self.training_graph(options, limits)?, limits, &settings)?
            }
            Recompute::Auto if activations != Activations::Keep => {
                let message = "`Recompute::Auto` does not weigh activations in the host's memory: offload them with another \
                               rule, or none";
                return Err(Error::setting("recompute", message));
            }
            Recompute::Auto => {
                let Some(Bytes(budget)) = options.budget else {
                    let message = "`Recompute::Auto` fits a budget, and `PlanOptions::budget` is not set";
                    return Err(Error::setting("recompute", message));
                };
                RecomputePlanner::new(bare.clone(), limits, &options.roofline, options.fuse)?
                    .cheapest(budget, effort, limits, &settings)?
            }
            rule => {
                // What `rebuild` makes again is not kept, and need not be sent away.
                let graph =
                    if rule == Recompute::Off { self.training_graph(options, limits)? } else { bare.clone() };
                let planner = RecomputePlanner::new(graph, limits, &options.roofline, options.fuse)?;
                let mut retention = planner.by_rule(rule)?;
                planner.send_away(&mut retention, activations)?;
                Plan::lay_out(planner.program(&retention, limits)?, limits, &settings)?.lower()?
            }
        };
        plan.work = Work::of(&bare, plan.graph(), &options.roofline).moving(&plan.program, &options.roofline);
        Ok(plan)
    }

    /// The same step with nothing saved: operations run as traced, nothing is computed again, and every tensor has memory
    /// of its own. What other plans are compared with; no budget is checked.
    ///
    /// # Errors
    /// As [`TrainStep::plan`].
    pub fn plan_naive(&self, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        let (precision, offload) = (Precision::F32, Offload::OFF);
        let options =
            PlanOptions { rebuild: false, fuse: false, reuse: false, precision, offload, ..*options };
        let options = PlanOptions { bit_masks: false, weights: WeightStorage::F32, ..options };
        let settings = Settings { in_place: false, reorder: false, ..self.settings(&options) };
        let limits = &limits.within(precision);
        Plan::compile(self.training_graph(&options, limits)?, limits, &settings)
    }

    /// The graph with its backward pass and updates.
    pub(super) fn training_graph(&self, options: &PlanOptions, limits: &Limits) -> Result<Graph> {
        self.after_passes(passes::COUNT, options, limits)
    }

    pub(super) fn choices<'a>(options: &PlanOptions, limits: &'a Limits) -> Choices<'a> {
        let storage = options.precision.storage();
        Choices {
            limits,
            training: true,
            fuse: options.fuse,
            rebuild: options.rebuild,
            bit_masks: options.bit_masks,
            storage,
            // Without a loss scale small gradients would vanish in `f16`.
            half_gradients: storage == Some(DType::BF16) || options.loss_scale.is_some(),
            weights: options.weights,
            offload: options.offload.optimizer.then_some(Offload::SMALLEST),
        }
    }

    /// [`TrainStep::training_graph`] after the first `count` passes.
    pub(super) fn after_passes(&self, count: usize, options: &PlanOptions, limits: &Limits) -> Result<Graph> {
        let choices = Self::choices(options, limits);
        let [before, after] = passes::first(count);
        let graph = passes::run(before, self.graph.clone(), &choices);
        let loss = graph.outputs[0].1;
        options.check_scale()?;
        let (trace, gradients) =
            autodiff::differentiate_scaled(graph, loss, options.loss_scale, options.accumulate.max(1))?;
        let (trace, gradients) = accumulated(trace, gradients, options.accumulate)?;
        options.optimizer.append(&trace, gradients, options.clip)?;
        Ok(passes::run(after, trace.finish()?, &choices))
    }

    pub(super) fn settings(&self, options: &PlanOptions) -> Settings {
        Settings {
            optimizer: Some(options.optimizer),
            seed: self.seed,
            reorder: true,
            in_place: true,
            parts: options.reuse && !options.guard,
            reuse: options.reuse && !options.guard,
            fuse_updates: options.fuse && options.reuse && !options.guard,
            budget: options.budget.map(|Bytes(most)| most),
            guard_bytes: if options.guard { ALIGNMENT } else { 0 },
        }
    }
}

/// The step repeated for each part of a batch, gradients summed.
fn accumulated(trace: Trace, gradients: Gradients, times: u32) -> Result<(Trace, Gradients)> {
    match times {
        0 => Err(Error::setting("accumulate", "accumulate 0: a step has at least one part")),
        1 => Ok((trace, gradients)),
        _ => {
            let id = |gradient: &Tensor| gradient.id();
            let pairs: Vec<_> = gradients
                .pairs
                .iter()
                .filter_map(|(param, gradient)| Some((*param, id(gradient)?)))
                .collect();
            let scaled = gradients.scaled.and_then(|(scale, state)| Some((scale, state.id()?)));
            let (graph, pairs) = passes::accumulate(trace.finish()?, &pairs, times);
            let trace = Trace::over(graph, Mode::Train);
            let pairs = pairs.into_iter().map(|(param, sum)| (param, trace.tensor(sum))).collect();
            let scaled = scaled.map(|(scale, state)| (scale, trace.tensor(state)));
            Ok((trace, Gradients { pairs, scaled }))
        }
    }
}

/// Bytes of all arenas together as one way of saving after the other joins in, by lower bounds. What a
/// fused updates spend is not in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savings {
    /// Every tensor has memory of its own for the whole step.
    pub naive: u64,
    /// Tensors that are not alive together share memory; operations run as traced.
    pub lifetimes: u64,
    /// And element-wise results take over their operand's memory.
    pub in_place: u64,
    /// And slices and joins are places in the whole's memory.
    pub views: u64,
    /// And operations run in the order with the lowest peak.
    pub order: u64,
    /// And cheap results are computed again in the backward pass, if that is on.
    pub rebuild: u64,
    /// And functions of single elements run as one operation, if that is on.
    pub fuse: u64,
}

/// A traced forward pass: evaluation and inference. No gradients are kept.
#[derive(Clone, Debug)]
pub struct Forward {
    graph: Graph,
    seed: u64,
}

impl Forward {
    /// Traces `model`; what it returns becomes the output `name`.
    ///
    /// # Errors
    /// [`Error::Trace`](crate::Error::Trace) with every mistake in the model.
    pub fn trace(params: &Params, name: &str, model: impl FnOnce(&Trace) -> Tensor) -> Result<Self> {
        let graph = Trace::record(params, Mode::Eval, name, model)?;
        Ok(Self { graph, seed: params.seed() })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Plans every byte.
    ///
    /// # Errors
    /// A tensor that no binding covers.
    pub fn plan(&self, limits: &Limits) -> Result<Plan> {
        self.plan_with(WeightStorage::F32, limits)
    }

    /// [`Forward::plan`] over weights that live as `weights` says: a session's plans agree on that.
    ///
    /// # Errors
    /// As there.
    pub fn plan_with(&self, weights: WeightStorage, limits: &Limits) -> Result<Plan> {
        self.plan_in(Precision::F32, weights, limits)
    }

    /// [`Forward::plan_with`] in a precision. Nothing waits for a backward pass here: in [`Precision::F16`] products and
    /// convolutions may round their factors to use cooperative matrices, if `limits` has any.
    ///
    /// # Errors
    /// As there.
    pub fn plan_in(&self, precision: Precision, weights: WeightStorage, limits: &Limits) -> Result<Plan> {
        let limits = &limits.within(precision);
        self.compile(limits, weights, true)
    }

    /// The same with every operation on its own: what fused plans are compared with.
    ///
    /// # Errors
    /// As [`Forward::plan`].
    pub fn plan_unfused(&self, limits: &Limits) -> Result<Plan> {
        self.compile(&limits.within(Precision::F32), WeightStorage::F32, false)
    }

    fn compile(&self, limits: &Limits, weights: WeightStorage, fuse: bool) -> Result<Plan> {
        let settings = Settings {
            seed: self.seed,
            reorder: true,
            in_place: true,
            parts: true,
            reuse: true,
            ..Settings::default()
        };
        let choices = Choices {
            limits,
            training: false,
            fuse,
            rebuild: false,
            bit_masks: false,
            storage: None,
            half_gradients: false,
            weights,
            offload: None,
        };
        let [before, after] = passes::first(passes::COUNT);
        let graph = passes::run(before, self.graph.clone(), &choices);
        Plan::compile(passes::run(after, graph, &choices), limits, &settings)
    }
}
