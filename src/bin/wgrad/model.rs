//! Options that select the network, its inputs and its classes; shared by `plan`, `bench`, `run` and `export`.

use std::collections::BTreeMap;
use std::path::Path;

use wgrad::compile::{Forward, TrainStep};
use wgrad::dtype::{FrozenStorage, Precision, Rounding, WeightStorage};
use wgrad::graph::{LoraConfig, ParamGroup, Params};
use wgrad::models::{Model, ModelOptions};
use wgrad::onnx::{Loss, Network, Sizes};
use wgrad::{Error, Result};

/// Samples per step of a model by name.
const BATCH: usize = 128;

/// Options that select the network.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Choice {
    #[arg(help = format!("Path of an ONNX file, NAME.onnx, folder of Hugging Face with a config.json, or name of a model: {}", Model::NAMES.join(", ")))]
    pub model: String,
    /// Rows and columns of an image, such as 224 or 416x608; the model's own by default.
    #[arg(long)]
    image: Option<String>,
    /// Number of classes; the model's own by default.
    #[arg(long, allow_negative_numbers = true)]
    classes: Option<usize>,
    /// Tokens in a sequence, and rows of a learned position table; the model's own by default.
    #[arg(long, allow_negative_numbers = true)]
    pub seq: Option<usize>,
    /// Length of a dimension that an ONNX file leaves open, by its name or as INPUT.AXIS.
    #[arg(long, value_name = "NAME=LENGTH", value_parser = named_length)]
    dim: Vec<(String, usize)>,
}

#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    pub choice: Choice,
    /// Samples per step; by default 128, or as many as an ONNX file fixes.
    #[arg(long, allow_negative_numbers = true)]
    pub batch: Option<usize>,
    /// Loss of an ONNX network: cross-entropy or mse of its first output, or output:NAME; by default what fits the output.
    #[arg(long, value_name = "LOSS")]
    loss: Option<Loss>,
    /// Format of activations saved for the backward pass: f32, f16, bf16, int8 or int4.
    #[arg(long, visible_alias = "activations", default_value = "f32")]
    pub precision: String,
    /// Storage format of matrices, tables and convolution kernels: f32, f16, bf16 or bf24, which is bf16 for the network and 8 bits
    /// more for the update.
    #[arg(long, default_value = "f32")]
    pub weights: String,
    /// Round 16-bit weights stochastically, so that small steps accumulate.
    #[arg(long)]
    pub stochastic_rounding: bool,
    /// Do not train the parameters whose path matches this, in which * stands for any characters, such as
    /// 'conv1.*'; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub freeze: Vec<String>,
    /// Train low-rank adapters of linear layers in place of the model, such as
    /// r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05; targets=all-linear by default.
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, default_missing_value = "")]
    pub lora: Option<LoraConfig>,
    /// Storage format of matrices that are not trained: f32, f16, bf16, int8, int4 or nf4; by default that of --weights.
    #[arg(long, value_name = "FORMAT", value_parser = frozen_storage)]
    pub frozen_weights: Option<FrozenStorage>,
    /// Fuse no operations: element-wise functions, norms applied by convolutions, and updates of norms and
    /// biases run one by one.
    #[arg(long, alias = "unfused")]
    pub no_fuse: bool,
}

/// The network that the options select.
pub enum Selected {
    /// One of wgrad's models, by name or by its `config.json`.
    Named(Model),
    /// An ONNX file.
    File { network: Box<Network>, params: Params, sizes: Sizes, loss: Loss },
}

impl Selected {
    /// Returns the name of the model or of the file.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(model) => &model.name,
            Self::File { network, .. } => network.name().rsplit(['/', '\\']).next().unwrap_or_default(),
        }
    }

    /// Returns the tokens in a sequence; `None` for a model over numbers and for a file.
    pub fn seq(&self) -> Option<usize> {
        if let Self::Named(model) = self { model.seq() } else { None }
    }

    /// Returns the parameters. Those of a file are known once it is traced.
    pub fn params(&self) -> &Params {
        match self {
            Self::Named(model) => model.params(),
            Self::File { params, .. } => params,
        }
    }

    /// Returns the batch, where a file fixes it.
    pub fn fixed_batch(&self) -> Option<usize> {
        if let Self::File { network, .. } = self { network.fixed_batch() } else { None }
    }

    /// Traces the forward pass of `batch` samples.
    pub fn forward(&self, batch: usize) -> Result<Forward> {
        match self {
            Self::Named(model) => model.forward(batch),
            Self::File { network, params, sizes, .. } => {
                network.inference(params, &Sizes { batch: Some(batch), ..sizes.clone() })
            }
        }
    }

    /// Traces the training step of `batch` samples.
    pub fn train_step(&self, batch: usize) -> Result<TrainStep> {
        match self {
            Self::Named(model) => model.train_step(batch),
            Self::File { network, params, sizes, loss } => {
                let sizes = Sizes { batch: Some(batch), ..sizes.clone() };
                network.train_step(params, &sizes, |trace, outputs| network.loss(loss, trace, outputs))
            }
        }
    }
}

impl Choice {
    /// Returns the network: a file if the name ends in `.onnx`.
    pub fn open(&self) -> Result<Selected> {
        self.open_in(Params::new(0))
    }

    fn open_in(&self, params: Params) -> Result<Selected> {
        let wrong = |message: &str| Err(Error::setting("command line", message));
        if !self.is_file() {
            if !self.dim.is_empty() {
                return wrong(&format!("--dim belongs to ONNX files, not to `{}`", self.model));
            }
            let image = self.image.as_deref().map(size).transpose()?;
            let options = ModelOptions { image, classes: self.classes, seq: self.seq };
            // A name is a model's, even where there is a folder of that name: `./gpt2` is the folder.
            let named = Model::NAMES.contains(&self.model.as_str());
            return Ok(Selected::Named(match !named && Path::new(&self.model).is_dir() {
                true => Model::open(params, &self.model, &options)?,
                false => Model::over(params, &self.model, &options)?,
            }));
        }
        if self.image.is_some() || self.classes.is_some() || self.seq.is_some() {
            return wrong(
                "--image, --classes and --seq belong to models by name; an ONNX file takes --dim NAME=LENGTH",
            );
        }
        Ok(Selected::File {
            network: Box::new(Network::read(&self.model)?),
            params,
            sizes: Sizes { batch: None, named: BTreeMap::from_iter(self.dim.iter().cloned()) },
            loss: Loss::default(),
        })
    }

    /// Refuses a loss for a model by name, which has its own.
    pub fn no_loss(&self, loss: Option<&Loss>) -> Result<()> {
        match loss {
            None => Ok(()),
            Some(_) => {
                let message = format!("--loss belongs to ONNX files, not to `{}`", self.model);
                Err(Error::setting("command line", message))
            }
        }
    }

    /// Refuses lengths of dimensions where they would be ignored.
    pub fn no_dim(&self, why: &str) -> Result<()> {
        match &self.dim[..] {
            [(name, _), ..] if self.is_file() => {
                Err(Error::setting("command line", format!("--dim {name}: {why}")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an empty batch of a file; models by name refuse it themselves.
    pub fn check_batch(&self, batch: Option<usize>) -> Result<()> {
        if batch == Some(0) && self.is_file() {
            return Err(Error::setting("batch", "a batch of 0: it must be at least 1"));
        }
        Ok(())
    }

    fn is_file(&self) -> bool {
        self.model.to_ascii_lowercase().ends_with(".onnx")
    }
}

impl Options {
    /// Returns the options of sequences with this many tokens.
    pub fn with_seq(&self, tokens: usize) -> Self {
        Self { choice: Choice { seq: Some(tokens), ..self.choice.clone() }, ..self.clone() }
    }

    /// Returns the samples per step.
    pub fn batch(&self, network: &Selected) -> usize {
        self.batch.or(network.fixed_batch()).unwrap_or(BATCH)
    }

    /// Returns the model, the size of its input and what is trained of it as text: `gpt2 · batch 8 · 1024 tokens`.
    pub fn title(&self, network: &Selected) -> String {
        let seq = network.seq().map_or(String::new(), |seq| format!(" · {seq} tokens"));
        let lora = self.lora.as_ref().map_or(String::new(), |lora| format!(" · {lora}"));
        let frozen = self.frozen_weights.map(FrozenStorage::name);
        let frozen = frozen.map_or(String::new(), |name| format!(" · frozen in {name}"));
        format!("{} · batch {}{seq}{lora}{frozen}", network.name(), self.batch(network))
    }

    pub fn precision(&self) -> Result<Precision> {
        Precision::named(&self.precision).ok_or_else(|| Error::Unknown {
            kind: "precision",
            name: self.precision.clone(),
            known: Precision::ALL.map(|precision| precision.name().to_owned()).to_vec(),
        })
    }

    pub fn weights(&self) -> Result<WeightStorage> {
        let rounding = if self.stochastic_rounding { Rounding::Stochastic } else { Rounding::Nearest };
        let weights = WeightStorage::named(&self.weights, rounding).ok_or_else(|| Error::Unknown {
            kind: "weight storage",
            name: self.weights.clone(),
            known: WeightStorage::NAMES.map(str::to_owned).to_vec(),
        })?;
        if weights.rounding() != rounding {
            let message = "--stochastic-rounding is for weights in 16 bits: add --weights bf16 or f16";
            return Err(Error::setting("command line", message.to_owned()));
        }
        Ok(weights)
    }

    /// Returns the network with its loss and frozen parameters.
    pub fn network(&self) -> Result<Selected> {
        self.seeded_network(0)
    }

    /// Returns the network, with what is not read from a file initialized by `seed`.
    pub fn seeded_network(&self, seed: u64) -> Result<Selected> {
        self.prepared(self.opened(seed)?)
    }

    /// Returns the network for plans: a file's parameters are not read.
    pub fn planned_network(&self) -> Result<Selected> {
        self.prepared(match self.opened(0)? {
            Selected::File { network, params, sizes, loss } => {
                Selected::File { network: Box::new(network.without_elements()), params, sizes, loss }
            }
            named => named,
        })
    }

    /// Returns the network with its adapters.
    fn opened(&self, seed: u64) -> Result<Selected> {
        let wrong = |message: &str| Err(Error::setting("command line", message));
        let params = Params::new(seed);
        if let Some(lora) = &self.lora {
            if self.choice.is_file() {
                return wrong(
                    "--lora belongs to models by name and folders: an ONNX file has no layers to adapt",
                );
            }
            params.adapt(&LoraConfig { base: self.frozen_weights, ..lora.clone() })?;
        } else if self.frozen_weights.is_some() && self.freeze.is_empty() {
            return wrong("--frozen-weights is for what is not trained: add --lora or --freeze");
        }
        self.choice.open_in(params)
    }

    fn prepared(&self, mut selected: Selected) -> Result<Selected> {
        self.choice.check_batch(self.batch)?;
        match &mut selected {
            Selected::Named(model) => {
                self.choice.no_loss(self.loss.as_ref())?;
                self.freeze_in(model.params())?;
            }
            Selected::File { loss, .. } => *loss = self.loss.clone().unwrap_or_default(),
        }
        if let (Selected::File { params, .. }, false) = (&selected, self.freeze.is_empty()) {
            // Its parameters are known once it is traced.
            selected.train_step(self.batch(&selected))?;
            self.freeze_in(params)?;
        }
        Ok(selected)
    }

    fn freeze_in(&self, params: &Params) -> Result<()> {
        let group = ParamGroup { frozen: true, storage: self.frozen_weights, ..ParamGroup::default() };
        self.freeze.iter().try_for_each(|pattern| params.set_group(pattern, group).map(drop))
    }
}

pub fn frozen_storage(name: &str) -> std::result::Result<FrozenStorage, String> {
    let known = || FrozenStorage::ALL.map(FrozenStorage::name).join(", ");
    FrozenStorage::named(name).ok_or_else(|| format!("expected {}", known()))
}

/// Reads `NAME=LENGTH`.
fn named_length(text: &str) -> std::result::Result<(String, usize), String> {
    let wrong = || format!("`{text}`: expected NAME=LENGTH, such as sequence=128");
    let (name, length) = text.rsplit_once('=').ok_or_else(wrong)?;
    let length = length.parse().ok().filter(|length| *length > 0).ok_or_else(wrong)?;
    Ok((name.to_owned(), length))
}

fn size(text: &str) -> Result<[usize; 2]> {
    let wrong =
        || Error::setting("command line", format!("--image {text}: expected a size such as 224 or 416x608"));
    let mut sides = text.split('x').map(str::parse::<usize>);
    let first = sides.next().and_then(std::result::Result::ok).ok_or_else(wrong)?;
    let second = sides.next().transpose().map_err(|_| wrong())?.unwrap_or(first);
    if sides.next().is_some() { Err(wrong()) } else { Ok([first, second]) }
}
