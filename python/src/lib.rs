//! The compiled half of the Python package `wgrad`: plans as JSON and HTML. `python/wgrad/__init__.py` has the documented functions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use wgrad::compile::{Offload, PlanOptions, Recompute, TrainStep};
use wgrad::dtype::{Precision, Rounding, WeightStorage};
use wgrad::graph::Params;
use wgrad::limits::Limits;
use wgrad::memory::planner::{Effort, Item, Options, Problem, solve};
use wgrad::models::{Model, ModelOptions};
use wgrad::onnx::{Loss, Network, Sizes};
use wgrad::optim::{Clip, Optimizer};
use wgrad::report::{self, Answer, Asked, Panel, TraceFile};
use wgrad::{Bytes, Error as Failure};

create_exception!(wgrad, Error, PyException, "What went wrong in wgrad, with the numbers and what to do.");

/// Arguments that cannot be are a `ValueError`, everything else is a `wgrad.Error`.
fn raised(error: Failure) -> PyErr {
    match error {
        Failure::Setting { .. } | Failure::Unknown { .. } | Failure::Pack(_) => {
            PyValueError::new_err(error.to_string())
        }
        _ => Error::new_err(error.to_string()),
    }
}

fn unknown(kind: &'static str, name: &str, known: &[&str]) -> Failure {
    let known = known.iter().map(|&name| name.to_owned()).collect();
    Failure::Unknown { kind, name: name.to_owned(), known }
}

/// A number of bytes, or a size such as `8GB`.
#[derive(FromPyObject)]
enum Size {
    Bytes(u64),
    Text(String),
}

/// The options of a plan, by the names of the command line.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    optimizer: String,
    budget: Option<Size>,
    fit: bool,
    precision: String,
    weights: String,
    stochastic_rounding: bool,
    limits: String,
    recompute: String,
    rebuild: bool,
    fuse: bool,
    bit_masks: bool,
    accumulate: u32,
    offload: String,
    card: String,
    clip_norm: Option<f32>,
}

impl Settings {
    fn options(&self) -> wgrad::Result<PlanOptions> {
        let budget = match &self.budget {
            None => None,
            Some(Size::Bytes(bytes)) => Some(Bytes(*bytes)),
            Some(Size::Text(text)) => {
                let budget = text.parse::<Bytes>();
                Some(budget.map_err(|why| Failure::setting("budget", format!("budget {text}: {why}")))?)
            }
        };
        let precision = Precision::named(&self.precision)
            .ok_or_else(|| unknown("precision", &self.precision, &Precision::ALL.map(Precision::name)))?;
        if self.stochastic_rounding && self.weights == "f32" {
            let message = "stochastic_rounding is for weights in 16 bits: add weights=\"bf16\" or \"f16\"";
            return Err(Failure::setting("stochastic_rounding", message));
        }
        let rounding = if self.stochastic_rounding { Rounding::Stochastic } else { Rounding::Nearest };
        let weights = WeightStorage::named(&self.weights, rounding)
            .ok_or_else(|| unknown("weight storage", &self.weights, &WeightStorage::NAMES))?;
        Ok(PlanOptions {
            optimizer: Optimizer::named(&self.optimizer)?,
            clip: self.clip_norm.map_or(Clip::Off, Clip::Norm),
            budget,
            rebuild: self.rebuild,
            fuse: self.fuse,
            bit_masks: self.bit_masks,
            precision,
            weights,
            recompute: Recompute::named(&self.recompute)?,
            accumulate: self.accumulate,
            offload: Offload::named(&self.offload)?,
            card: self.card.parse().map_err(|message: String| Failure::setting("card", message))?,
            ..PlanOptions::default()
        })
    }

    /// Samples in each part of a batch.
    fn part(&self, batch: usize) -> wgrad::Result<usize> {
        let parts = self.accumulate as usize;
        if parts == 0 || !batch.is_multiple_of(parts) {
            let message = format!("accumulate {parts}: it must divide the batch of {batch}");
            return Err(Failure::setting("accumulate", message));
        }
        Ok(batch / parts)
    }

    fn plan(
        &self,
        network: &Described<'_>,
        trace: Option<&Trace<'_>>,
        step: TrainStep,
    ) -> wgrad::Result<Planned> {
        let options = self.options()?;
        let limits = Limits::named(&self.limits)
            .ok_or_else(|| unknown("set of limits", &self.limits, &Limits::NAMES))?;
        let Described { name, batch, seq, params } = *network;
        let answer = Answer::of(&step, self.part(batch)?, trace, &options, &limits, self.fit)?;
        let asked = Asked {
            model: name,
            batch,
            seq,
            parameters: params.count(),
            trained: params.trained(),
            optimizer: &self.optimizer,
            precision: &self.precision,
            weights: &self.weights,
            stochastic_rounding: self.stochastic_rounding,
            freeze: &[],
            lora: None,
            frozen_weights: None,
            limits: &self.limits,
            recompute: &self.recompute,
            offload: &self.offload,
        };
        Ok(Planned {
            title: format!("{name}, batch {batch}, {}", self.optimizer),
            json: answer.json(&asked, &options).to_string(),
            text: answer.estimate(batch).to_string(),
            plan: answer.plan,
            step,
            options,
            limits,
        })
    }
}

/// Traces a network for a number of samples.
type Trace<'a> = dyn Fn(usize) -> wgrad::Result<TrainStep> + 'a;

/// What is said about a network.
struct Described<'a> {
    name: &'a str,
    batch: usize,
    seq: Option<usize>,
    params: &'a Params,
}

/// A plan, with what its pictures need.
#[pyclass(frozen, module = "wgrad._native")]
struct Planned {
    title: String,
    json: String,
    text: String,
    plan: wgrad::compile::Plan,
    step: TrainStep,
    options: PlanOptions,
    limits: Limits,
}

#[pymethods]
impl Planned {
    /// What `wgrad plan --json` prints.
    fn json(&self) -> &str {
        &self.json
    }

    /// The table of bytes.
    fn text(&self) -> &str {
        &self.text
    }

    fn title(&self) -> &str {
        &self.title
    }

    /// The page of `wgrad plan --html`, with the plan next to one without any savings.
    fn html(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| {
            let naive = self.step.plan_naive(&self.options, &self.limits).map_err(raised)?;
            let panels = [Panel { name: "naive", plan: &naive }, Panel { name: "planned", plan: &self.plan }];
            Ok(report::page(&panels, &self.title))
        })
    }
}

#[pyfunction]
fn plan(
    py: Python<'_>,
    name: &str,
    batch: usize,
    image: Option<[usize; 2]>,
    classes: Option<usize>,
    seq: Option<usize>,
    settings: Settings,
) -> PyResult<Planned> {
    let planned = || {
        let model = Model::with_options(name, 0, &ModelOptions { image, classes, seq })?;
        let step = model.train_step(settings.part(batch)?)?;
        let network = Described { name: &model.name, batch, seq: model.seq(), params: model.params() };
        settings.plan(&network, Some(&|part| model.train_step(part)), step)
    };
    py.detach(planned).map_err(raised)
}

#[pyfunction]
fn plan_onnx(
    py: Python<'_>,
    path: PathBuf,
    batch: Option<usize>,
    sizes: BTreeMap<String, usize>,
    settings: Settings,
) -> PyResult<Planned> {
    let planned = || {
        let network = Network::read(&path)?.without_elements();
        let fixed = network.fixed_batch();
        if batch == Some(0) {
            return Err(Failure::setting("batch", "a batch of 0: it must be at least 1"));
        }
        if fixed.is_some() && settings.accumulate != 1 {
            let message = "accumulate: the file fixes its batch; export it with a dynamic first dimension";
            return Err(Failure::setting("accumulate", message));
        }
        let trace = |params: &Params, batch: Option<usize>| {
            let sizes = Sizes { batch, named: sizes.clone() };
            network.train_step(params, &sizes, |trace, outputs| network.loss(&Loss::Auto, trace, outputs))
        };
        let parts = batch.map(|batch| settings.part(batch)).transpose()?;
        let params = Params::new(0);
        let step = trace(&params, parts)?;
        let retrace = |part| trace(&Params::new(0), Some(part));
        let described = Described {
            name: network.name(),
            batch: batch.or(fixed).unwrap_or(1),
            seq: None,
            params: &params,
        };
        // Only the rows of a batch that was asked for can be others.
        let retrace = (fixed.is_none() && batch.is_some()).then_some(&retrace as &Trace<'_>);
        settings.plan(&described, retrace, step)
    };
    py.detach(planned).map_err(raised)
}

/// Items are names, lifetimes `[lower, upper)`, sizes and alignments. Returns the report and an offset for each item.
#[pyfunction]
fn pack(
    py: Python<'_>,
    items: Vec<(String, u64, u64, u64, u64)>,
    capacity: Option<u64>,
    effort: &str,
) -> PyResult<(String, Vec<u64>)> {
    let effort = match effort {
        "fast" => Effort::Fast,
        "balanced" => Effort::Balanced,
        "exact" => Effort::Exact,
        _ => return Err(raised(unknown("effort", effort, &["fast", "balanced", "exact"]))),
    };
    let item = |(name, lower, upper, size, alignment): (String, u64, u64, u64, u64)| {
        Item::new(name, lower, upper, size).aligned(alignment)
    };
    let problem = Problem::new(items.into_iter().map(item).collect());
    let start = Instant::now();
    let options = Options { effort, capacity, time_limit: None };
    let packing = py.detach(|| solve(&problem, &options)).map_err(|error| raised(error.into()))?;
    let json = report::packing_json(&problem, &packing, start.elapsed().as_secs_f64()).to_string();
    let certificate = &packing.certificate;
    match capacity {
        Some(capacity) if certificate.height > capacity => {
            let (height, bound) = (certificate.height, certificate.lower_bound);
            let advice = match bound > capacity {
                true => "no packing can fit; shrink or shorten the buffers",
                false => "try effort=\"exact\"",
            };
            Err(Error::new_err(format!(
                "it needs {height} bytes, more than the capacity of {capacity} (lower bound {bound}): {advice}"
            )))
        }
        _ => Ok((json, packing.solution.placements.iter().map(|placement| placement.offset).collect())),
    }
}

#[pyfunction]
fn replay_trace(
    py: Python<'_>,
    path: PathBuf,
    strategy: &str,
    capacity: Option<u64>,
    device: Option<usize>,
) -> PyResult<String> {
    let replayed = || {
        let chosen = report::contenders_named(strategy)?;
        if capacity == Some(0) {
            return Err(Failure::setting("capacity", "capacity 0: it must be at least 1 byte"));
        }
        let file = TraceFile::read(&path, device)?;
        let outcomes = chosen.into_iter().map(|contender| file.replay(contender, capacity));
        let outcomes = outcomes.collect::<wgrad::Result<Vec<_>>>()?;
        Ok(file.json(&path, &outcomes).to_string())
    };
    py.detach(replayed).map_err(raised)
}

#[pyfunction]
fn models() -> Vec<&'static str> {
    Model::NAMES.to_vec()
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{Error, Planned, models, pack, plan, plan_onnx, replay_trace};
}
