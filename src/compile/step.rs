//! The units that users plan: a training step, and a forward pass.

use super::auto::{Extent, Searches};
use super::passes::{self, Accumulated, Choices, Gathers, Parts, SharedBucket};
use super::recompute::{RecomputePlanner, Work};
use super::{Activations, Offload, Parallel, Plan, PlanOptions, Recompute, Settings, Shard};
use crate::autodiff::{self, Gradients, Read};
use crate::dtype::{DType, FrozenStorage, Precision, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::{GradientOf, Graph, Mode, Param, ParamGroup, Params, Tensor, Trace, ValueId};
use crate::limits::{ALIGNMENT, Limits};
use crate::memory::planner::Effort;
use crate::optim::Clip;
use crate::units::Bytes;
use crate::{parallel, progress};

/// A traced model with a scalar loss: the forward half of a training step.
#[derive(Clone, Debug)]
pub struct TrainStep {
    graph: Graph,
    seed: u64,
    pub(super) searches: Searches,
}

impl TrainStep {
    /// Traces `model`, which returns the loss. Uses shapes only: no device, no data.
    ///
    /// # Errors
    /// [`Error::Trace`](crate::Error::Trace) with every mistake in the model.
    #[track_caller]
    pub fn trace(params: &Params, model: impl FnOnce(&Trace) -> Tensor) -> Result<Self> {
        let graph = Trace::record(params, Mode::Train, "loss", model)?;
        Ok(Self { graph, seed: params.seed(), searches: Searches::default() })
    }

    /// Returns a copy of the step that stores frozen matrices as `storage`; `None` if that saves no bytes in a plan that stores
    /// weights as `weights`.
    pub(in crate::compile) fn with_frozen(
        &self,
        storage: FrozenStorage,
        weights: WeightStorage,
    ) -> Option<Self> {
        let mut graph = self.graph.clone();
        let bytes = |param: &Param| param.stored_as(weights).bytes(param.shape().numel());
        let before: u64 = graph.parameters.iter().map(bytes).sum();
        for param in graph.parameters.iter_mut().filter(|param| param.group().frozen) {
            *param = param.in_group(ParamGroup { storage: Some(storage), ..*param.group() });
        }
        let after = graph.parameters.iter().map(bytes).sum::<u64>();
        // Searches are of one graph.
        (after < before).then(|| Self { graph, seed: self.seed, searches: Searches::default() })
    }

    /// The forward graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Bytes of all arenas together, with memory optimizations enabled one after another.
    ///
    /// # Errors
    /// As [`TrainStep::plan`], except for the budget.
    pub fn savings(&self, options: &PlanOptions, limits: &Limits) -> Result<Savings> {
        let limits = &limits.within(options.precision);
        // Without fusion there may be tensors larger than a binding, which no plan has.
        let unbound = &Limits { max_binding: u64::MAX, ..limits.clone() };
        let (on, off) = (true, false);
        let passes = [[off, off], [options.rebuild, off], [options.rebuild, options.fuse]];
        // Which of these passes run, and whether results overwrite operands, slices are views and operations are reordered.
        let settings = [
            (0, [off, off, off]),
            (0, [on, off, off]),
            (0, [on, on, off]),
            (0, [on, on, on]),
            (1, [on, on, on]),
            (2, [on, on, on]),
        ];
        let task = progress::task("savings", (passes.len() + settings.len()) as u64);
        let graph = |[rebuild, fuse]: [bool; 2]| {
            self.training_graph(&PlanOptions { rebuild, fuse, ..*options }, limits)
        };
        let tell = |known: usize| task.done(known as u64);
        let graphs = parallel::map_and_tell(passes.len(), |i| graph(passes[i]), tell);
        let graphs = graphs.into_iter().collect::<Result<Vec<_>>>()?;
        let bound = |(graph, [in_place, parts, reorder]): (usize, [bool; 3])| -> Result<(u64, u64)> {
            let settings = Settings { in_place, parts, reorder, ..self.settings(options) };
            let program = Plan::assign(&graphs[graph], unbound, &settings)?;
            Ok((program.persistent_bytes() + program.naive_bytes, program.lower_bound(limits)?))
        };
        let tell = |known: usize| task.done((graphs.len() + known) as u64);
        let bounds = parallel::map_and_tell(settings.len(), |i| bound(settings[i]), tell);
        let bounds = bounds.into_iter().collect::<Result<Vec<_>>>()?;
        let (naive, lifetimes) = bounds[0];
        let [in_place, views, order, rebuild, fuse] = [1, 2, 3, 4, 5].map(|i| bounds[i].1);
        Ok(Savings { naive, lifetimes, in_place, views, order, rebuild, fuse })
    }

    /// Differentiates the loss, adds the updates and plans all memory. No adapter is opened.
    /// [`Recompute::Auto`] searches for a while; plans of this step for other budgets share the search.
    ///
    /// # Errors
    /// A loss that is not a scalar, an optimizer setting out of range, a tensor larger than a binding, a plan
    /// over the budget.
    pub fn plan(&self, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        self.within_budget(self.plan_over_budget(options, limits)?, options, limits)
    }

    /// [`TrainStep::plan`] for a session with another training plan, such as that of all batches beside that of a smaller last one: if
    /// optimizer state is offloaded, the same is, whatever the budget would have room for.
    ///
    /// # Errors
    /// As [`TrainStep::plan`].
    pub fn plan_beside(&self, train: &Plan, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        let plan = self.plan_with(Some(train), options, limits)?;
        self.within_budget(plan, options, limits)
    }

    fn within_budget(&self, plan: Plan, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        match options.budget {
            Some(budget) if plan.footprint().total() > budget.0 => {
                Err(self.refuse(&plan, options, budget, limits))
            }
            _ => Ok(plan),
        }
    }

    /// [`TrainStep::plan`] without the budget check. With [`Recompute::Auto`] it returns the smallest plan if
    /// none fits the budget.
    ///
    /// # Errors
    /// As [`TrainStep::plan`], except for the budget.
    pub fn plan_over_budget(&self, options: &PlanOptions, limits: &Limits) -> Result<Plan> {
        self.plan_with(None, options, limits)
    }

    /// [`TrainStep::plan_beside`], if there is another plan, without the budget check.
    pub(crate) fn plan_with(
        &self,
        beside: Option<&Plan>,
        options: &PlanOptions,
        limits: &Limits,
    ) -> Result<Plan> {
        super::plan::check_limits(limits)?;
        let limits = &limits.within(options.precision);
        let away = beside.and_then(|plan| plan.state_away);
        if options.recompute == Recompute::Auto {
            return self.plan_auto(away, options, limits);
        }
        let extent = Extent { away: away.unwrap_or(1.0), ..Extent::ALL };
        let settings = self.settings(options);
        // The graph already stores activations in 16 bits, so recomputation sees the 16-bit sizes.
        let kept = PlanOptions { rebuild: false, ..*options };
        let (graph, gathers) = self.before_gathers(passes::COUNT, &kept, extent, limits)?;
        let bare = gathers.added_to(graph.clone());
        let activations = options.offload.activations;
        // Results that `rebuild` recomputes are not kept and need no offloading.
        let (graph, gathers) = match options.recompute {
            Recompute::Off => self.before_gathers(passes::COUNT, options, extent, limits)?,
            _ => (graph, gathers),
        };
        let mut plan = if options.recompute == Recompute::Off && activations == Activations::Keep {
            Plan::compile(gathers.added_to(graph), limits, &settings)?
        } else {
            let planner = RecomputePlanner::new(graph, gathers, limits, &options.card, options.fuse)?;
            let mut retention = planner.by_rule(options.recompute)?;
            planner.send_away(&mut retention, activations)?;
            Plan::lay_out(planner.program(&retention, limits)?, limits, &settings)?.lower()?
        };
        plan.work = Work::of(&bare, &plan, limits, &options.card)?;
        Ok(extent.noted(plan, options))
    }

    /// The same step without optimizations: operations run as traced, nothing is recomputed, and every tensor
    /// has its own memory. The baseline for other plans; the budget is not checked.
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

    pub(super) fn choices<'a>(
        &self,
        options: &PlanOptions,
        Extent { coded, away }: Extent,
        limits: &'a Limits,
    ) -> Choices<'a> {
        let precision = options.precision;
        Choices {
            limits,
            training: true,
            fuse: options.fuse,
            rebuild: options.rebuild,
            bit_masks: options.bit_masks,
            precision,
            coded,
            // Without a loss scale, small gradients would underflow in `f16`.
            half_gradients: precision.storage() == Some(DType::BF16) || options.loss_scale.is_some(),
            weights: options.weights,
            pieces: options.parallel.shard == Shard::None && options.optimizer.check_shards().is_ok(),
            half_weights: stores_half(&self.graph, options.weights),
            away: if options.offload.optimizer { away } else { 0.0 },
        }
    }

    /// [`TrainStep::training_graph`] after the first `count` passes.
    pub(super) fn after_passes(&self, count: usize, options: &PlanOptions, limits: &Limits) -> Result<Graph> {
        let (graph, gathers) = self.before_gathers(count, options, Extent::ALL, limits)?;
        Ok(gathers.added_to(graph))
    }

    /// [`TrainStep::after_passes`] without what gathers sharded parameters, which is returned as well.
    pub(super) fn before_gathers(
        &self,
        count: usize,
        options: &PlanOptions,
        extent: Extent,
        limits: &Limits,
    ) -> Result<(Graph, Gathers)> {
        let choices = self.choices(options, extent, limits);
        let [before, after] = passes::first(count);
        options.check_scale()?;
        let PlanOptions { accumulate: total, parallel, .. } = *options;
        if total == 0 {
            return Err(Error::setting("accumulate", "accumulate 0: a step has at least one part"));
        }
        options.check_ranks()?;
        let counts = parallel.counts(total)?;
        let mut graph = self.graph.clone();
        if parallel.tensor > 1 {
            graph = passes::split_layers(graph, parallel, None)?;
        }
        let graph = passes::run(before, graph, &choices);
        let loss = graph.outputs[0].1;
        let norm = graph.gradient_outputs.iter().any(|(_, of)| *of == GradientOf::Norm);
        let of_data = parallel.of_data();
        let parts = Parts {
            total,
            counts,
            parallel: of_data,
            whole_gradients: norm || options.clip != Clip::Off,
            weights: options.weights,
        };
        let (trace, gradients) = autodiff::differentiate_scaled(graph, loss, options.loss_scale, total)?;
        // With shares of their own the ranks read parameters for the last time at different exchanges.
        let late = parts.whole_gradients || options.loss_scale.is_some() || !parallel.shares.is_even();
        let (trace, mut gradients, shared) = accumulated(trace, gradients, parts)?;
        gradients.weights = options.weights;
        if choices.pieces {
            let away = passes::parameters_away(&self.graph.parameters, choices.away);
            gradients.update_at_once =
                away.into_iter().map(|name| (name.to_owned(), Offload::AT_ONCE)).collect();
        }
        options.optimizer.append(&trace, gradients, options.clip)?;
        let mut graph = trace.finish()?;
        passes::share_updates(&mut graph, &shared, parallel, late);
        if parallel.tensor > 1 {
            passes::sum_ranks(&mut graph, &parallel);
        }
        passes::order_exchanges(&mut graph);
        // What widens and fuses weights has been decided: they are gathered as they are stored.
        let graph = passes::run(after, graph, &choices);
        let mut buckets = Vec::new();
        if parallel.ranks > 1 && parallel.shard == Shard::Parameters {
            buckets = shared;
            buckets.extend(SharedBucket::frozen(&graph, parallel));
        }
        Ok((graph, Gathers { buckets, parallel }))
    }

    pub(super) fn settings(&self, options: &PlanOptions) -> Settings {
        Settings {
            optimizer: Some(options.optimizer),
            seed: self.seed,
            parallel: options.parallel,
            reorder: true,
            in_place: true,
            parts: options.reuse && !options.guard,
            reuse: options.reuse && !options.guard,
            fuse_updates: options.fuse && options.reuse && !options.guard,
            budget: options.budget.map(|Bytes(most)| most),
            guard_bytes: if options.guard { ALIGNMENT } else { 0 },
            packing: Effort::default(),
        }
    }
}

/// Whether a parameter is stored in 16 bits.
fn stores_half(graph: &Graph, weights: WeightStorage) -> bool {
    graph.parameters.iter().any(|param| param.stored_as(weights) != DType::F32)
}

/// The most operations of an accumulated step: a plan of a million takes gigabytes of host memory.
const MOST_NODES: u64 = 1_000_000;

/// Repeats the step for each part of a batch and sums the gradients.
fn accumulated(
    trace: Trace,
    gradients: Gradients,
    parts: Parts,
) -> Result<(Trace, Gradients, Vec<SharedBucket>)> {
    let (total, own, parallel) = (parts.total, parts.own(), parts.parallel);
    if total == 1 {
        return Ok((trace, gradients, Vec::new()));
    }
    let nodes = trace.len();
    if nodes as u64 * u64::from(own) > MOST_NODES {
        let message = format!(
            "accumulate {total}: {own} times the {nodes} operations of a step are too many for one plan (at most \
             {MOST_NODES}); accumulate less, or make the parts larger"
        );
        return Err(Error::setting("accumulate", message));
    }
    let is_single = |(_, gradient): &&(ValueId, Tensor)| gradient.dtype() == DType::F32;
    if parallel.ranks > 1
        && let Some((param, gradient)) = gradients.pairs.iter().find(|pair| !is_single(pair))
    {
        let (name, dtype) = (trace.name_of(*param), gradient.dtype());
        let message = format!("the gradient of `{name}` is {dtype}: ranks add up gradients in f32");
        return Err(Error::setting("parallel", message));
    }
    let id = |gradient: &Tensor| gradient.id();
    let pairs: Vec<_> =
        gradients.pairs.iter().filter_map(|(param, gradient)| Some((*param, id(gradient)?))).collect();
    let scaled = gradients.scaled.and_then(|(scale, state)| Some((scale, state.id()?)));
    let read = gradients.read;
    let whole = read.iter().filter_map(|(_, of)| match of {
        Read::Value(value, gradient) => Some((*value, id(gradient)?)),
        Read::Norm => None,
    });
    let whole: Vec<_> = whole.collect();
    let Accumulated { graph, sums, read: wholes, shared } =
        passes::accumulate(trace.finish()?, [&pairs, &whole], parts);
    let rank = parallel.rank;
    let shares = shared.iter().flat_map(|bucket| bucket.shares(&graph, rank)).collect();
    let trace = Trace::over(graph, Mode::Train);
    let pairs = sums.into_iter().map(|(param, sum)| (param, trace.tensor(sum))).collect();
    let scaled = scaled.map(|(scale, state)| (scale, trace.tensor(state)));
    let mut wholes = wholes.into_iter();
    let read = read.into_iter().map(|(name, of)| match (&of, wholes.len()) {
        (Read::Value(value, _), 1..) => {
            let whole = wholes.next().map(|whole| trace.tensor(whole));
            (name, whole.map_or(of.clone(), |whole| Read::Value(*value, whole)))
        }
        _ => (name, of),
    });
    let read = read.collect();
    Ok((trace, Gradients { pairs, shares, scaled, read, ..Gradients::default() }, shared))
}

/// Lower bounds on the bytes of all arenas together, with each optimization added to those before it. The
/// cost of fused updates is not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savings {
    /// Every tensor has its own memory for the whole step.
    pub naive: u64,
    /// Tensors with disjoint lifetimes share memory; operations run as traced.
    pub lifetimes: u64,
    /// Elementwise results overwrite their operand.
    pub in_place: u64,
    /// Slices and concatenations are views.
    pub views: u64,
    /// Operations run in the order with the lowest peak.
    pub order: u64,
    /// Cheap results are recomputed in the backward pass, if that is enabled.
    pub rebuild: u64,
    /// Operations are fused, if that is enabled.
    pub fuse: u64,
}

/// A traced forward pass, for evaluation and inference. No gradients are kept.
#[derive(Clone, Debug)]
pub struct Forward {
    graph: Graph,
    seed: u64,
}

impl Forward {
    /// Traces `model`; its result becomes the output `name`.
    ///
    /// # Errors
    /// [`Error::Trace`](crate::Error::Trace) with every mistake in the model.
    #[track_caller]
    pub fn trace(params: &Params, name: &str, model: impl FnOnce(&Trace) -> Tensor) -> Result<Self> {
        let graph = Trace::record(params, Mode::Eval, name, model)?;
        Ok(Self { graph, seed: params.seed() })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Plans all memory.
    ///
    /// # Errors
    /// A tensor larger than a binding.
    pub fn plan(&self, limits: &Limits) -> Result<Plan> {
        self.plan_with(WeightStorage::F32, limits)
    }

    /// [`Forward::plan`] with weights stored as `weights`. All plans of a session must use the same weight
    /// storage.
    ///
    /// # Errors
    /// As [`Forward::plan`].
    pub fn plan_with(&self, weights: WeightStorage, limits: &Limits) -> Result<Plan> {
        self.plan_in(Precision::F32, weights, limits)
    }

    /// [`Forward::plan_with`] for a session with a training plan. If that shards parameters
    /// ([`Shard::Parameters`](super::Shard::Parameters)), this plan has the same shares and gathers the others; if ranks compute
    /// layers together ([`Parallel::tensor`]), they do in this plan, too. All ranks then run it together, on the same inputs.
    ///
    /// # Errors
    /// As [`Forward::plan`].
    pub fn plan_beside(&self, train: &Plan, weights: WeightStorage, limits: &Limits) -> Result<Plan> {
        self.compile(&limits.within(Precision::F32), weights, true, Some(train))
    }

    /// [`Forward::plan_with`] in a precision. No activations are kept for a backward pass: in
    /// [`Precision::F16`], products and convolutions may round their factors to use cooperative matrices, if
    /// `limits` has any.
    ///
    /// # Errors
    /// As [`Forward::plan`].
    pub fn plan_in(&self, precision: Precision, weights: WeightStorage, limits: &Limits) -> Result<Plan> {
        let limits = &limits.within(precision);
        self.compile(limits, weights, true, None)
    }

    /// [`Forward::plan`] without fusion: the baseline for fused plans.
    ///
    /// # Errors
    /// As [`Forward::plan`].
    #[cfg_attr(not(feature = "internals"), doc(hidden))]
    pub fn plan_unfused(&self, limits: &Limits) -> Result<Plan> {
        self.compile(&limits.within(Precision::F32), WeightStorage::F32, false, None)
    }

    fn compile(
        &self,
        limits: &Limits,
        weights: WeightStorage,
        fuse: bool,
        beside: Option<&Plan>,
    ) -> Result<Plan> {
        let parallel = beside.map_or(Parallel::default(), |train| train.parallel);
        let settings = Settings {
            seed: self.seed,
            parallel,
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
            precision: Precision::F32,
            coded: 0.0,
            half_gradients: false,
            weights,
            pieces: true,
            half_weights: stores_half(&self.graph, weights),
            away: 0.0,
        };
        let [before, after] = passes::first(passes::COUNT);
        let mut graph = self.graph.clone();
        if let Some(train) = beside.filter(|_| parallel.tensor > 1) {
            graph = passes::split_layers(graph, parallel, Some(train.graph()))?;
        }
        let mut graph = passes::run(before, graph, &choices);
        if parallel.tensor > 1 {
            passes::sum_ranks(&mut graph, &parallel);
            passes::order_exchanges(&mut graph);
        }
        let mut graph = passes::run(after, graph, &choices);
        if let Some(train) = beside {
            let shared = SharedBucket::of_step(&mut graph, &train.graph().sharded);
            graph = Gathers { buckets: shared, parallel }.added_to(graph);
        }
        Plan::compile(graph, limits, &settings)
    }
}
