//! A plan and what `wgrad plan` says about it: savings, and how it compares with a budget.

use super::{Estimate, LargestBatch, kept, kept_bytes, tensors};
use crate::compile::{self, Lever, Parallel, Plan, PlanOptions, Recompute, Savings, TrainStep};
use crate::error::{Error, Result};
use crate::graph::LoraConfig;
use crate::json::Json;
use crate::limits::Limits;
use crate::parallel;
use crate::units::Bytes;

/// Traces a network for a number of samples.
pub type Trace<'a> = dyn Fn(usize) -> Result<TrainStep> + Sync + 'a;

/// A plan and what `wgrad plan` says about it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The plan. It may exceed its budget.
    pub plan: Plan,
    /// Bytes that each method of the planner saves.
    pub savings: Savings,
    /// Changes to the options that make the plan fit, in words.
    pub changes: Vec<String>,
    /// The comparison with the budget, if there is one.
    pub fitting: Option<Fitting>,
    /// A lower bound on the part of the step's time that recomputation takes within the budget, by
    /// [`TrainStep::least_recomputation`], if [`Recompute::Auto`] chose a plan that fits.
    pub least_recomputed: Option<f64>,
    /// The plans of all ranks, by their numbers, if these have [shares](crate::compile::Shares) of their own.
    pub ranks: Vec<RankPlan>,
}

/// One rank's plan, in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankPlan {
    /// Number of parts of the batch that it computes.
    pub parts: u32,
    /// Bytes that its session creates on the device.
    pub bytes: u64,
    /// Bytes that it sends in each step.
    pub sent: u64,
    /// Modelled time of its step, in seconds, less what it waits for ranks with more parts.
    pub step_s: f64,
}

impl RankPlan {
    /// Plans the step of each rank, if they have shares of their own.
    fn of_all(step: &TrainStep, options: &PlanOptions, limits: &Limits) -> Result<Vec<Self>> {
        let ranks = if options.parallel.shares.is_even() { 0 } else { options.parallel.ranks };
        let of = |rank: u32| {
            let parallel = Parallel { rank, ..options.parallel };
            let plan = step.plan_over_budget(&PlanOptions { parallel, ..*options }, limits)?;
            let parts = parallel.parts(options.accumulate).len() as u32;
            let step_s = plan.wire_times(&options.card)?.step_s;
            Ok(Self { parts, bytes: plan.footprint().total(), sent: plan.wire_bytes(), step_s })
        };
        (0..ranks).map(of).collect()
    }

    fn json(&self) -> Json {
        Json::object([
            ("parts", Json::from(u64::from(self.parts))),
            ("rank_bytes", self.bytes.into()),
            ("wire_bytes", self.sent.into()),
            ("rank_step_seconds", self.step_s.into()),
        ])
    }
}

/// A plan's memory compared with its budget.
#[derive(Clone, Debug)]
pub struct Fitting {
    /// The budget.
    pub budget: Bytes,
    /// Whether the plan fits.
    pub fits: bool,
    /// Options that would save memory; empty if the plan fits.
    pub levers: Vec<Lever>,
    /// The cheapest combination that fits, if this plan does not fit and another does: changes, total bytes,
    /// extra time as a fraction.
    pub cheapest: Option<(String, u64, f64)>,
    /// The largest batch within the budget; `None` if the network has a fixed batch, or if [`Recompute::Auto`] chooses what is
    /// computed again, as the choice for each batch is a search, and [`Answer::with_max_batch`] was not called.
    pub largest: Option<LargestBatch>,
    /// The most tokens in each sequence within the budget, by [`compile::max_seq`]; `None` if nobody asked.
    pub max_seq: Option<usize>,
}

/// What a plan was made of, by the names of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Name of the network.
    pub model: &'a str,
    /// Samples per step.
    pub batch: usize,
    /// Tokens in a sequence, if the network takes tokens.
    pub seq: Option<usize>,
    /// Number of elements of all parameters.
    pub parameters: u64,
    /// Number of elements of those that are trained.
    pub trained: u64,
    /// Name of the optimizer.
    pub optimizer: &'a str,
    /// Name of the precision of activations.
    pub precision: &'a str,
    /// Name of the storage of weights.
    pub weights: &'a str,
    /// Whether 16-bit weights are rounded stochastically.
    pub stochastic_rounding: bool,
    /// Patterns of the parameters that are not trained.
    pub freeze: &'a [String],
    /// Adapters that are trained in place of the model, and the storage of its weights.
    pub lora: Option<&'a LoraConfig>,
    /// Name of the storage of what is not trained, where it differs from that of weights.
    pub frozen_weights: Option<&'a str>,
    /// Name of the limits.
    pub limits: &'a str,
    /// What is recomputed: [`Recompute::named`](crate::compile::Recompute::named).
    pub recompute: &'a str,
    /// What is offloaded: [`Offload::named`](crate::compile::Offload::named).
    pub offload: &'a str,
}

fn adapters(lora: &LoraConfig) -> Json {
    Json::object([
        ("r", Json::from(lora.rank)),
        ("alpha", f64::from(lora.alpha).into()),
        ("dropout", lora.dropout.into()),
        ("dora", lora.dora.into()),
        ("targets", Json::list(lora.targets.iter().map(String::as_str))),
    ])
}

/// Returns the comparison with the budget that a search is within.
fn searched_within<'a>(
    fitting: &'a mut Option<Fitting>,
    setting: &'static str,
    what: &str,
) -> Result<&'a mut Fitting> {
    let message = || format!("{what} is searched for within a budget: set one");
    fitting.as_mut().ok_or_else(|| Error::setting(setting, message()))
}

impl Answer {
    /// Plans `step`, traced for `part` samples, under the budget of the options. A plan that does not fit is no error: the
    /// answer then has the ways to make it fit. With `fit` the answer is the cheapest plan that fits, if there is one.
    /// `trace` traces the network for other numbers of samples; without it the batch stays as it is, and there are neither
    /// levers nor a largest batch, which under [`Recompute::Auto`] takes [`Answer::with_max_batch`].
    ///
    /// # Errors
    /// As [`TrainStep::plan`], except for [`Error::OverBudget`].
    pub fn of(
        step: &TrainStep,
        part: usize,
        trace: Option<&Trace<'_>>,
        options: &PlanOptions,
        limits: &Limits,
        fit: bool,
    ) -> Result<Self> {
        let savings = || step.savings(options, limits);
        let plan = || step.plan_over_budget(options, limits);
        let Some(budget) = options.budget else {
            let (plan, savings) = parallel::both(plan, savings);
            let (plan, savings, ranks) = (plan?, savings?, RankPlan::of_all(step, options, limits)?);
            return Ok(Self {
                plan,
                savings,
                changes: Vec::new(),
                fitting: None,
                least_recomputed: None,
                ranks,
            });
        };
        // Copies of a step share what was searched for it.
        let trace = trace
            .map(|trace| move |batch: usize| if batch == part { Ok(step.clone()) } else { trace(batch) });
        let trace = trace.as_ref();
        let fitted = || match trace {
            Some(trace) => compile::find_fit(step, trace, part, options, budget, limits),
            None => step.find_fit(options, budget, limits),
        };
        let planned = || -> Result<(Plan, Vec<String>, PlanOptions)> {
            Ok(match if fit { fitted()? } else { None } {
                Some(fitted) => (fitted.plan, fitted.changes, fitted.options),
                None => (plan()?, Vec::new(), *options),
            })
        };
        // This thread reports its progress, so the longer work is done here.
        let (planned, savings) = parallel::both(planned, savings);
        let ((plan, changes, planned), savings) = (planned?, savings?);
        // Accumulation in more parts, which `fit` may choose, makes other parts of the batch.
        let ranks = match planned.accumulate == options.accumulate {
            true => RankPlan::of_all(step, &planned, limits)?,
            false => Vec::new(),
        };
        let fits = plan.footprint().total() <= budget.0;
        let (mut levers, mut cheapest) = (Vec::new(), None);
        if !fits {
            let ways = || {
                trace.map_or(Ok(Vec::new()), |trace| compile::levers(trace, part, options, budget, limits))
            };
            let found = || if fit { Ok(None) } else { fitted() };
            let (found, ways) = parallel::both(found, ways);
            levers = ways?;
            cheapest = found?
                .map(|found| (found.changes.join(", "), found.plan.footprint().total(), found.time_fraction));
        }
        let fitting = Some(Fitting { budget, fits, levers, cheapest, largest: None, max_seq: None });
        let bounded = fits && changes.is_empty() && options.recompute == Recompute::Auto;
        let least = if bounded { step.least_recomputation(&plan, options, limits)? } else { None };
        let least_recomputed = least.map(|seconds| seconds / plan.work.step_s);
        let answer = Self { plan, savings, changes, fitting, least_recomputed, ranks };
        match trace {
            Some(trace) if options.recompute != Recompute::Auto => {
                answer.with_max_batch(Some(trace), options, limits)
            }
            _ => Ok(answer),
        }
    }

    /// Adds the largest batch within the budget, by [`compile::max_batch`], and the largest one that leaves a part of it free, if they
    /// are not there; `trace` is that of [`Answer::of`].
    ///
    /// # Errors
    /// [`Error::Setting`] without a budget, and for a network of a fixed batch, which has no `trace`; otherwise as
    /// [`compile::max_batch`].
    pub fn with_max_batch(
        mut self,
        trace: Option<&Trace<'_>>,
        options: &PlanOptions,
        limits: &Limits,
    ) -> Result<Self> {
        let fitting = searched_within(&mut self.fitting, "max_batch", "the largest batch")?;
        if fitting.largest.is_some() {
            return Ok(self);
        }
        let trace = trace.ok_or_else(|| Error::setting("max_batch", "the batch of this network is fixed"))?;
        let budgets = [fitting.budget, self.plan.estimate().spared(fitting.budget)];
        let most = compile::max_batches(trace, options, budgets, limits)?;
        let [all, with_headroom] = most.map(|parts| parts * options.accumulate as usize);
        fitting.largest = Some(LargestBatch { budget: fitting.budget, all, with_headroom });
        Ok(self)
    }

    /// Adds the longest sequence within the budget, by [`compile::max_seq`]; `trace` traces the network for a number of tokens in
    /// each sequence.
    ///
    /// # Errors
    /// [`Error::Setting`] without a budget; otherwise as [`compile::max_seq`].
    pub fn with_max_seq(
        mut self,
        trace: impl FnMut(usize) -> Result<TrainStep>,
        options: &PlanOptions,
        limits: &Limits,
    ) -> Result<Self> {
        let fitting = searched_within(&mut self.fitting, "max_seq", "the longest sequence")?;
        fitting.max_seq = Some(compile::max_seq(trace, options, fitting.budget, limits)?);
        Ok(self)
    }

    /// Returns the estimate of the plan's memory for a batch of this many samples.
    pub fn estimate(&self, batch: usize) -> Estimate {
        let estimate = self.plan.estimate().with_savings(self.savings).with_batch(batch);
        match self.fitting.as_ref().and_then(|fitting| fitting.largest) {
            Some(largest) => estimate.with_largest_batch(largest),
            None => estimate,
        }
    }

    /// Returns what `wgrad plan --json` prints. `options` are those that the plan was asked for.
    pub fn json(&self, asked: &Asked<'_>, options: &PlanOptions) -> Json {
        let mut entries = self.request(asked, options);
        entries.extend(self.memory());
        entries.extend(self.work(asked));
        entries.extend(self.wire(options));
        entries.extend(self.fitting.iter().flat_map(Fitting::entries));
        Json::object(entries)
    }

    fn request(&self, asked: &Asked<'_>, options: &PlanOptions) -> Vec<(&'static str, Json)> {
        vec![
            ("model", asked.model.into()),
            ("batch", asked.batch.into()),
            ("seq", asked.seq.into()),
            ("parameters", asked.parameters.into()),
            ("trained_parameters", asked.trained.into()),
            ("optimizer", asked.optimizer.into()),
            ("precision", asked.precision.into()),
            ("weights", asked.weights.into()),
            ("stochastic_rounding", asked.stochastic_rounding.into()),
            ("freeze", Json::list(asked.freeze.iter().map(String::as_str))),
            ("lora", asked.lora.map_or(Json::Null, adapters)),
            ("frozen_weights", asked.frozen_weights.map_or(Json::Null, Json::from)),
            ("limits", asked.limits.into()),
            ("recompute", asked.recompute.into()),
            ("rebuild", options.rebuild.into()),
            ("fused", options.fuse.into()),
            ("bit_masks", options.bit_masks.into()),
            ("accumulate", u64::from(options.accumulate).into()),
            ("ranks", u64::from(options.parallel.ranks).into()),
            ("shard", options.parallel.shard.name().into()),
            ("shares", options.parallel.shares.to_string().into()),
            ("tensor", u64::from(options.parallel.tensor).into()),
            ("changes", Json::list(self.changes.iter().map(String::as_str))),
        ]
    }

    fn memory(&self) -> Vec<(&'static str, Json)> {
        let (plan, savings, footprint) = (&self.plan, &self.savings, self.plan.footprint());
        let classes = plan.class_bytes().into_iter().map(|(class, bytes)| (class.name(), bytes.into()));
        let arenas = plan.layout.arenas().map(|(arena, bytes)| {
            Json::object([("name", arena.to_string().into()), ("bytes", bytes.into())])
        });
        vec![
            ("naive_bytes", plan.naive_bytes().into()),
            ("lower_bound_bytes", plan.lower_bound_bytes().into()),
            ("peak_bytes", plan.peak_bytes().into()),
            (
                "savings",
                Json::object([
                    ("naive_bytes", savings.naive.into()),
                    ("by_lifetimes_bytes", savings.lifetimes.into()),
                    ("in_place_bytes", savings.in_place.into()),
                    ("views_bytes", savings.views.into()),
                    ("best_order_bytes", savings.order.into()),
                    ("rebuild_bytes", savings.rebuild.into()),
                    ("fuse_bytes", Json::from(savings.fuse)),
                ]),
            ),
            ("classes", Json::object(classes)),
            ("arenas", Json::List(arenas.collect())),
            (
                "peak_at",
                Json::object([
                    ("op", Json::from(plan.peak.op.as_str())),
                    ("layer", plan.peak.layer.as_str().into()),
                    ("position", plan.peak.position.into()),
                ]),
            ),
            (
                "device_bytes",
                Json::object([
                    ("total", footprint.total().into()),
                    ("arenas", (footprint.persistent + footprint.step).into()),
                    ("uniforms", footprint.uniforms.into()),
                    ("staging", footprint.staging.into()),
                    ("readback", footprint.readback.into()),
                    ("transfer", footprint.transfer.into()),
                    ("offload", Json::from(footprint.offload)),
                ]),
            ),
            ("host_bytes", footprint.host.into()),
        ]
    }

    fn work(&self, asked: &Asked<'_>) -> Vec<(&'static str, Json)> {
        let plan = &self.plan;
        let kept = kept(plan).into_iter().map(|k| {
            Json::object([("op", Json::from(k.op)), ("tensors", k.tensors.into()), ("bytes", k.bytes.into())])
        });
        let tensors = tensors(plan).into_iter().map(|t| {
            Json::object([
                ("name", t.name.into()),
                ("shape", Json::list(t.shape.dims().iter().copied())),
                ("dtype", t.dtype.name().into()),
                ("class", t.class.name().into()),
                ("bytes", t.bytes.into()),
                ("first", t.first.into()),
                ("last", t.last.into()),
                ("arena", t.region.arena.to_string().into()),
                ("offset", Json::from(t.region.offset)),
            ])
        });
        vec![
            ("offload", asked.offload.into()),
            ("moved_bytes", plan.work.moved.into()),
            ("moved_time_fraction", plan.work.moved_fraction().into()),
            ("operations", plan.program.order.len().into()),
            ("dispatches", plan.program.launches.len().into()),
            ("kept_bytes", kept_bytes(plan).into()),
            ("kept", Json::List(kept.collect())),
            ("recompute_flops_fraction", plan.work.flops_fraction().into()),
            ("recompute_time_fraction", plan.work.time_fraction().into()),
            ("least_recompute_time_fraction", self.least_recomputed.into()),
            ("coded", plan.coded.into()),
            ("state_away", plan.state_away.into()),
            ("step_seconds", plan.work.step_s.into()),
            ("hash", format!("{:016x}", plan.hash()).into()),
            ("estimate", self.estimate(asked.batch).json()),
            ("tensors", Json::List(tensors.collect())),
        ]
    }

    fn wire(&self, options: &PlanOptions) -> Vec<(&'static str, Json)> {
        if self.plan.parallel.ranks == 1 {
            return Vec::new();
        }
        let times = self.plan.wire_times(&options.card).unwrap_or_default();
        vec![
            ("rank_bytes", self.plan.footprint().total().into()),
            ("wire_bytes", self.plan.wire_bytes().into()),
            ("wire_bytes_per_s", self.plan.parallel.wire_bytes_per_s.into()),
            ("wire_seconds", times.wire_s.into()),
            ("exposed_seconds", times.exposed_s.into()),
            ("exposed_fraction", times.exposed_fraction().into()),
            ("rank_step_seconds", times.step_s.into()),
            ("ranks_planned", Json::list(self.ranks.iter().map(RankPlan::json))),
        ]
    }
}

impl Fitting {
    fn entries(&self) -> Vec<(&'static str, Json)> {
        let lever = |lever: &Lever| {
            Json::object([
                ("name", lever.name.as_str().into()),
                ("peak_bytes", lever.peak_bytes.into()),
                ("total_bytes", lever.total_bytes.into()),
                ("saved_bytes", lever.saved_bytes.into()),
                ("time_fraction", lever.time_fraction.into()),
                ("exact", Json::from(lever.exact)),
            ])
        };
        let cheapest = self.cheapest.as_ref().map_or(Json::Null, |(changes, total, time)| {
            Json::object([
                ("changes", Json::from(changes.as_str())),
                ("total_bytes", (*total).into()),
                ("time_fraction", (*time).into()),
            ])
        });
        vec![
            ("budget_bytes", self.budget.0.into()),
            ("fits", self.fits.into()),
            ("max_batch", self.largest.map(|largest| largest.all).into()),
            ("max_seq", self.max_seq.into()),
            ("levers", Json::List(self.levers.iter().map(lever).collect())),
            ("cheapest", cheapest),
        ]
    }
}
