//! A plan that is asked for by the names and values of the command line: what Python and browsers call.

use std::str::FromStr;

use super::{Answer, Asked, Panel, Trace, page, page_data};
use crate::compile::{Offload, Parallel, PlanOptions, Recompute, Shard, Shares, TrainStep};
use crate::dtype::{FrozenStorage, Precision, Rounding, WeightStorage};
use crate::error::{Error, Result};
use crate::graph::{LoraConfig, LossScale, ParamGroup, Params};
use crate::json::Json;
use crate::limits::{CARDS, Card, Limits};
use crate::models::{Model, ModelOptions};
#[cfg(feature = "onnx")]
use crate::onnx::{Loss, Network, Sizes};
use crate::optim::{Adam, Clip, Optimizer};
use crate::units::Bytes;

/// The network that a plan is asked for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Source<'a> {
    /// A name of [`Model::NAMES`].
    Named(&'a str),
    /// A `config.json` of Hugging Face: its name in messages, and its content.
    #[cfg(feature = "safetensors")]
    Config(&'a str, &'a [u8]),
    /// A network from an ONNX file.
    #[cfg(feature = "onnx")]
    Onnx(&'a Network),
}

/// What a plan is asked for, by the options of `wgrad plan` without their dashes.
#[derive(Clone, Debug)]
pub struct Request {
    batch: Option<usize>,
    image: Option<[usize; 2]>,
    classes: Option<usize>,
    seq: Option<usize>,
    #[cfg(feature = "onnx")]
    sizes: Sizes,
    #[cfg(feature = "onnx")]
    loss: Loss,
    optimizer: String,
    limits: Limits,
    recompute: String,
    offload: String,
    weights: String,
    stochastic_rounding: bool,
    freeze: Vec<String>,
    lora: Option<LoraConfig>,
    frozen_weights: Option<FrozenStorage>,
    fit: bool,
    max_batch: bool,
    max_seq: bool,
    accumulate: Option<u32>,
    shares: String,
    /// The options whose value says all; others are completed by [`Request::options`].
    options: PlanOptions,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            batch: None,
            image: None,
            classes: None,
            seq: None,
            #[cfg(feature = "onnx")]
            sizes: Sizes::default(),
            #[cfg(feature = "onnx")]
            loss: Loss::default(),
            optimizer: "adam".to_owned(),
            limits: Limits::default(),
            recompute: "off".to_owned(),
            offload: "off".to_owned(),
            weights: "f32".to_owned(),
            stochastic_rounding: false,
            freeze: Vec::new(),
            lora: None,
            frozen_weights: None,
            fit: false,
            max_batch: false,
            max_seq: false,
            accumulate: None,
            shares: "even".to_owned(),
            options: PlanOptions { optimizer: Adam::default().into(), ..PlanOptions::default() },
        }
    }
}

/// The settings of [`Request::set`].
const SETTINGS: [&str; 31] = [
    "accumulate",
    "batch",
    "bit_masks",
    "budget",
    "card",
    "classes",
    "clip_norm",
    "dim",
    "fit",
    "freeze",
    "frozen_weights",
    "fuse",
    "image",
    "limits",
    "lora",
    "loss",
    "loss_scale",
    "max_batch",
    "max_seq",
    "offload",
    "optimizer",
    "precision",
    "ranks",
    "rebuild",
    "recompute",
    "seq",
    "shard",
    "shares",
    "stochastic_rounding",
    "tensor",
    "weights",
];

impl Request {
    /// Sets an option of `wgrad plan` by its name, with `_` for `-`, such as `("batch", "64")` or `("budget", "8GB")`. Flags
    /// are `true` or `false`; what is `--no-fuse` there is `("fuse", "false")`, and `rebuild` likewise. `freeze` and `dim`
    /// add to what was set before.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a name that is not an option; [`Error::Setting`] for a value that cannot be.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let options = &mut self.options;
        match name {
            "batch" => self.batch = Some(parsed(name, value, "a number of samples")?),
            "image" => self.image = Some(image(value)?),
            "classes" => self.classes = Some(parsed(name, value, "a number of classes")?),
            "seq" => self.seq = Some(parsed(name, value, "a number of tokens")?),
            #[cfg(feature = "onnx")]
            "dim" => {
                let length = value.rsplit_once('=').and_then(|(name, length)| {
                    Some((name.to_owned(), length.parse().ok().filter(|length| *length > 0)?))
                });
                let length = length.ok_or_else(|| wrong(name, value, "NAME=LENGTH, such as sequence=128"))?;
                self.sizes.named.extend([length]);
            }
            #[cfg(feature = "onnx")]
            "loss" => self.loss = value.parse().map_err(|message: String| Error::setting(name, message))?,
            "optimizer" => {
                options.optimizer = Optimizer::named(value)?;
                value.clone_into(&mut self.optimizer);
            }
            "limits" => {
                self.limits = Limits::named(value)
                    .ok_or_else(|| Error::unknown("set of limits", value, &Limits::NAMES))?;
            }
            "recompute" => {
                options.recompute = Recompute::named(value)?;
                value.clone_into(&mut self.recompute);
            }
            "offload" => {
                options.offload = Offload::named(value)?;
                value.clone_into(&mut self.offload);
            }
            "precision" => {
                options.precision = Precision::named(value).ok_or_else(|| {
                    Error::unknown("precision", value, &Precision::ALL.map(Precision::name))
                })?;
            }
            "weights" => {
                WeightStorage::named(value, Rounding::Nearest)
                    .ok_or_else(|| Error::unknown("weight storage", value, &WeightStorage::NAMES))?;
                value.clone_into(&mut self.weights);
            }
            "stochastic_rounding" => self.stochastic_rounding = flag(name, value)?,
            "freeze" => self.freeze.push(value.to_owned()),
            "lora" => self.lora = Some(value.parse()?),
            "frozen_weights" => {
                let known = FrozenStorage::ALL.map(FrozenStorage::name);
                let found = FrozenStorage::named(value);
                self.frozen_weights =
                    Some(found.ok_or_else(|| Error::unknown("weight storage", value, &known))?);
            }
            "budget" => {
                let budget = value.parse::<Bytes>();
                let budget =
                    budget.map_err(|why| Error::setting("budget", format!("budget {value}: {why}")))?;
                options.budget = Some(budget);
            }
            "fit" => self.fit = flag(name, value)?,
            "max_batch" => self.max_batch = flag(name, value)?,
            "max_seq" => self.max_seq = flag(name, value)?,
            "rebuild" => options.rebuild = flag(name, value)?,
            "fuse" => options.fuse = flag(name, value)?,
            "bit_masks" => options.bit_masks = flag(name, value)?,
            "accumulate" => self.accumulate = Some(parsed(name, value, "a number of parts")?),
            "ranks" => options.parallel.ranks = parsed(name, value, "a number of devices")?,
            "shard" => options.parallel.shard = Shard::named(value)?,
            "tensor" => options.parallel.tensor = parsed(name, value, "a number of devices")?,
            "shares" => self.shares = value.to_owned(),
            "clip_norm" => options.clip = Clip::Norm(parsed(name, value, "a number")?),
            "loss_scale" => options.loss_scale = flag(name, value)?.then(LossScale::default),
            "card" => {
                options.card = value.parse().map_err(|message: String| Error::setting(name, message))?
            }
            _ => return Err(Error::unknown("option", name, &SETTINGS)),
        }
        Ok(())
    }

    /// Returns the values that a setting may have, if it is one of a few names; otherwise nothing.
    pub fn choices(setting: &str) -> Vec<&'static str> {
        match setting {
            "optimizer" => Optimizer::NAMES.to_vec(),
            "limits" => Limits::NAMES.to_vec(),
            "card" => CARDS.iter().map(|card| card.name).collect(),
            "precision" => Precision::ALL.map(Precision::name).to_vec(),
            "weights" => WeightStorage::NAMES.to_vec(),
            "frozen_weights" => FrozenStorage::ALL.map(FrozenStorage::name).to_vec(),
            "shard" => Shard::ALL.map(Shard::name).to_vec(),
            _ => Vec::new(),
        }
    }

    /// Plans a training step of the network.
    ///
    /// # Errors
    /// [`Error::Setting`] and [`Error::Unknown`] for options that do not go together or do not belong to the network;
    /// otherwise as [`Answer::of`]. A plan that exceeds its budget is not an error.
    pub fn plan(&self, source: &Source<'_>) -> Result<Planned> {
        let (options, limits) = (self.options()?, self.limits.clone());
        let network = self.network(source)?;
        let batch = self.batch.or(network.fixed_batch).unwrap_or(network.usual_batch);
        let parts = options.accumulate as usize;
        if parts == 0 || !batch.is_multiple_of(parts) {
            let message = format!("accumulate {parts}: it must divide the batch of {batch}");
            return Err(Error::setting("accumulate", message));
        }
        let part = batch / parts;
        let step = (network.trace)(part)?;
        let trace = network.retraced.then_some(&*network.trace);
        let mut answer = Answer::of(&step, part, trace, &options, &limits, self.fit)?;
        if self.max_batch {
            answer = answer.with_max_batch(trace, &options, &limits)?;
        }
        if self.max_seq {
            if network.seq.is_none() {
                let message =
                    format!("`{}` takes no sequences: max_seq is for networks that do", network.name);
                return Err(Error::setting("max_seq", message));
            }
            let longer = |tokens| {
                let request = Self { seq: Some(tokens), ..self.clone() };
                (request.network(source)?.trace)(part)
            };
            answer = answer.with_max_seq(longer, &options, &limits)?;
        }
        let Described { name, seq, params, .. } = network;
        let params = [params.count(), params.trained()];
        Ok(Planned { request: self.clone(), name, batch, seq, params, answer, step, options, limits })
    }

    fn options(&self) -> Result<PlanOptions> {
        let rounding = if self.stochastic_rounding { Rounding::Stochastic } else { Rounding::Nearest };
        let weights = WeightStorage::named(&self.weights, rounding).unwrap_or_default();
        if weights.rounding() != rounding {
            let message = "stochastic rounding is for weights in 16 bits: set weights to bf16 or f16";
            return Err(Error::setting("stochastic_rounding", message));
        }
        let ranks = self.options.parallel.ranks;
        let Parallel { shard, tensor, .. } = self.options.parallel;
        let accumulate = self.parts();
        let shares = Shares::named(&self.shares, accumulate)?;
        let parallel = Parallel { shard, shares, tensor, ..Parallel::of(0, ranks) };
        Ok(PlanOptions { weights, parallel, accumulate, ..self.options })
    }

    /// The number of parts of the batch.
    fn parts(&self) -> u32 {
        self.accumulate.unwrap_or(self.options.parallel.data_ranks())
    }

    fn network<'a>(&self, source: &Source<'a>) -> Result<Described<'a>> {
        if self.lora.is_none() && self.frozen_weights.is_some() && self.freeze.is_empty() {
            let message = "frozen_weights is for what is not trained: set lora or freeze, too";
            return Err(Error::setting("frozen_weights", message));
        }
        let params = Params::new(0);
        if let Some(lora) = &self.lora {
            params.adapt(&LoraConfig { base: self.frozen_weights, ..lora.clone() })?;
        }
        let sizes = ModelOptions { image: self.image, classes: self.classes, seq: self.seq };
        let model = match *source {
            Source::Named(name) => Model::over(params, name, &sizes)?,
            #[cfg(feature = "safetensors")]
            Source::Config(name, json) => Model::from_config(params, name, json, &sizes)?,
            #[cfg(feature = "onnx")]
            Source::Onnx(network) => return self.file(network, params),
        };
        self.no_file_settings(&model.name)?;
        self.frozen_in(model.params())?;
        Ok(Described {
            name: model.name.clone(),
            usual_batch: 128,
            fixed_batch: None,
            retraced: true,
            seq: model.seq(),
            params: model.params().clone(),
            trace: Box::new(move |part| model.train_step(part)),
        })
    }

    #[cfg(not(feature = "onnx"))]
    fn no_file_settings(&self, _: &str) -> Result<()> {
        Ok(())
    }

    #[cfg(feature = "onnx")]
    fn no_file_settings(&self, name: &str) -> Result<()> {
        if self.sizes.named.is_empty() && self.loss == Loss::default() {
            return Ok(());
        }
        Err(Error::setting("dim", format!("dim and loss belong to ONNX files, not to `{name}`")))
    }

    #[cfg(feature = "onnx")]
    fn file<'a>(&self, network: &'a Network, params: Params) -> Result<Described<'a>> {
        if self.lora.is_some() {
            let message = "lora belongs to models by name: an ONNX file has no layers to adapt";
            return Err(Error::setting("lora", message));
        }
        if self.image.is_some() || self.classes.is_some() || self.seq.is_some() {
            let message =
                "image, classes and seq belong to models by name; an ONNX file takes dim NAME=LENGTH";
            return Err(Error::setting("dim", message));
        }
        if self.batch == Some(0) {
            return Err(Error::setting("batch", "a batch of 0: it must be at least 1"));
        }
        let fixed_batch = network.fixed_batch();
        if fixed_batch.is_some() && self.parts() != 1 {
            let message = "accumulate: the file fixes its batch; export it with a dynamic first dimension";
            return Err(Error::setting("accumulate", message));
        }
        let (sizes, loss) = (self.sizes.clone(), self.loss.clone());
        // Only the rows of a batch that was asked for can be others.
        let open = self.batch.is_some();
        let shared = params.clone();
        let trace = move |part: usize| {
            let sizes = Sizes { batch: open.then_some(part), ..sizes.clone() };
            network.train_step(&shared, &sizes, |trace, outputs| network.loss(&loss, trace, outputs))
        };
        if !self.freeze.is_empty() {
            // Its parameters are known once it is traced.
            trace(self.batch.or(fixed_batch).unwrap_or(1))?;
            self.frozen_in(&params)?;
        }
        let retraced = fixed_batch.is_none() && open;
        let name = network.name().to_owned();
        let trace = Box::new(trace);
        Ok(Described { name, usual_batch: 1, fixed_batch, retraced, seq: None, params, trace })
    }

    fn frozen_in(&self, params: &Params) -> Result<()> {
        let group = ParamGroup { frozen: true, storage: self.frozen_weights, ..ParamGroup::default() };
        self.freeze.iter().try_for_each(|pattern| params.set_group(pattern, group).map(drop))
    }
}

/// A network, and what is said about it.
struct Described<'a> {
    name: String,
    /// Samples per step, where neither the request nor the network says.
    usual_batch: usize,
    fixed_batch: Option<usize>,
    /// Whether it can be traced for other batches.
    retraced: bool,
    seq: Option<usize>,
    params: Params,
    trace: Box<Trace<'a>>,
}

/// A plan that was asked for, and all that is shown of it.
#[derive(Clone, Debug)]
pub struct Planned {
    request: Request,
    name: String,
    batch: usize,
    seq: Option<usize>,
    /// Elements of all parameters, and of those that are trained.
    params: [u64; 2],
    /// The plan, compared with its budget.
    pub answer: Answer,
    step: TrainStep,
    options: PlanOptions,
    limits: Limits,
}

impl Planned {
    /// Returns network, batch and optimizer in words.
    pub fn title(&self) -> String {
        format!("{}, batch {}, {}", self.name, self.batch, self.request.optimizer)
    }

    /// Returns what `wgrad plan --json` prints.
    pub fn json(&self) -> Json {
        let request = &self.request;
        let [parameters, trained] = self.params;
        let asked = Asked {
            model: &self.name,
            batch: self.batch,
            seq: self.seq,
            parameters,
            trained,
            optimizer: &request.optimizer,
            precision: self.options.precision.name(),
            weights: &request.weights,
            stochastic_rounding: request.stochastic_rounding,
            freeze: &request.freeze,
            lora: request.lora.as_ref(),
            frozen_weights: request.frozen_weights.map(FrozenStorage::name),
            limits: &request.limits.name,
            recompute: &request.recompute,
            offload: &request.offload,
        };
        self.answer.json(&asked, &self.options)
    }

    /// Returns the modelled time of the step's dispatches on each card of [`CARDS`]: `[{card, modelled_ms}]`. The plan stays
    /// the one that was made for the card of the request.
    ///
    /// # Errors
    /// As [`Plan::launches`](crate::compile::Plan::launches).
    pub fn times(&self) -> Result<Json> {
        let time = |card: &Card| {
            let launches = self.answer.plan.launches(card)?;
            let seconds: f64 = launches.iter().map(|launch| launch.seconds).sum();
            Ok(Json::object([("card", Json::from(card.name)), ("modelled_ms", (1e3 * seconds).into())]))
        };
        CARDS.iter().map(time).collect::<Result<_>>().map(Json::List)
    }

    /// Returns what the scripts of [`page`] draw, of this plan alone.
    pub fn page_data(&self) -> Json {
        page_data(&[Panel { name: "planned", plan: &self.answer.plan }])
    }

    /// Returns the table of bytes that `wgrad plan` prints.
    pub fn text(&self) -> String {
        self.answer.estimate(self.batch).to_string()
    }

    /// Returns the page of `wgrad plan --html`, with the plan next to one without any savings.
    ///
    /// # Errors
    /// Those of the plan without savings.
    pub fn html(&self) -> Result<String> {
        let naive = self.step.plan_naive(&self.options, &self.limits)?;
        let panels =
            [Panel { name: "naive", plan: &naive }, Panel { name: "planned", plan: &self.answer.plan }];
        Ok(page(&panels, &self.title()))
    }
}

fn wrong(name: &str, value: &str, expected: &str) -> Error {
    Error::setting(name, format!("{name} {value}: expected {expected}"))
}

fn parsed<T: FromStr>(name: &str, value: &str, expected: &str) -> Result<T> {
    value.parse().map_err(|_| wrong(name, value, expected))
}

fn flag(name: &str, value: &str) -> Result<bool> {
    parsed(name, value, "true or false")
}

/// Reads `224` or `416x608`.
fn image(value: &str) -> Result<[usize; 2]> {
    let sides: Option<Vec<usize>> = value.split('x').map(|side| side.parse().ok()).collect();
    match sides.as_deref() {
        Some([side]) => Ok([*side; 2]),
        Some(&[rows, columns]) => Ok([rows, columns]),
        _ => Err(wrong("image", value, "a size such as 224 or 416x608")),
    }
}
