//! Networks by name, to plan and to train.

mod bert;
#[cfg(feature = "safetensors")]
mod config;
mod context;
mod densenet;
mod gemma;
mod gpt;
mod kv_cache;
mod llama;
mod mlp;
mod mobilenet;
mod parts;
mod resnet;
mod sequence;
mod small;
mod transformer;
mod unet;
mod vgg;

pub use bert::{Bert, BertConfig};
pub use context::Context;
pub use gemma::Gemma;
pub use gpt::{Gpt, GptBlock, GptConfig};
pub use kv_cache::{CacheOptions, CacheSizes, KvCache};
pub use llama::{Llama, LlamaConfig};
pub use mlp::Mlp;
pub use resnet::ResNet;
pub use sequence::Sequence;

use crate::compile::{Forward, TrainStep};
use crate::error::{Error, Result};
use crate::graph::{Params, Tensor, Trace};
use crate::nn::Module;
use crate::shape::Shape;

/// A network and the layout of its batches: numbers or token ids as inputs, class indices as targets.
pub struct Model {
    /// Name on the command line, or that of the folder that it was read from.
    pub name: String,
    /// Number of elements or tokens in one input.
    pub inputs: usize,
    /// Number of classes; the vocabulary of a model over tokens.
    pub classes: usize,
    /// Number of labels of one input: one in all, one for each pixel, or one for each token.
    pub labels: usize,
    params: Params,
    network: Network,
    /// Rows hold several documents.
    documents: bool,
}

enum Network {
    /// Takes `f32` of this shape: `[length]`, or `[channels, rows, columns]`.
    Numbers(Vec<usize>, Box<dyn Module + Send + Sync>),
    /// Takes sequences of token ids; with [`Model::rename`].
    Tokens(Box<dyn Sequence + Send + Sync>, fn(&str) -> Option<String>),
}

/// Options of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelOptions {
    /// Rows and columns of the image; `None` for the size in the model's paper.
    pub image: Option<[usize; 2]>,
    /// Number of classes; `None` for that in the model's paper.
    pub classes: Option<usize>,
    /// Tokens in a sequence, and rows of a learned position table; `None` for those in the model's paper.
    pub seq: Option<usize>,
}

impl ModelOptions {
    fn check(&self) -> Result<()> {
        let Self { image, classes, seq } = *self;
        match classes == Some(0) || seq == Some(0) || image.is_some_and(|size| size.contains(&0)) {
            true => {
                let message = "0 classes, no tokens or an image without pixels: each must be at least 1";
                Err(Error::setting("model", message))
            }
            false => Ok(()),
        }
    }
}

/// Name, channels, rows, columns and classes of each network for images.
const IMAGES: [(&str, [usize; 3], usize); 8] = [
    ("cnn", [1, 28, 28], 10),
    ("lenet", [1, 28, 28], 10),
    ("resnet18", [3, 224, 224], 1000),
    ("resnet50", [3, 224, 224], 1000),
    ("vgg16", [3, 224, 224], 1000),
    ("mobilenet-v2", [3, 224, 224], 1000),
    ("densenet121", [3, 224, 224], 1000),
    ("unet", [3, 416, 608], 2),
];

impl Model {
    /// The names that [`Model::named`] knows.
    pub const NAMES: [&'static str; 32] = [
        "mlp",
        "digits",
        "cnn",
        "lenet",
        "resnet18",
        "resnet50",
        "vgg16",
        "mobilenet-v2",
        "densenet121",
        "unet",
        "gpt-nano",
        "gpt2",
        "gpt2-medium",
        "gpt2-large",
        "gpt2-xl",
        "llama-tiny",
        "bert-base",
        "smollm2-135m",
        "llama-3.2-1b",
        "llama-3.2-3b",
        "llama-3.1-8b",
        "mistral-7b",
        "qwen2.5-0.5b",
        "qwen2.5-1.5b",
        "qwen2.5-7b",
        "qwen3-0.6b",
        "qwen3-1.7b",
        "qwen3-4b",
        "qwen3-8b",
        "gemma-2-2b",
        "gemma-3-270m",
        "gemma-3-1b",
    ];

    /// Builds a network by name, with parameters initialized from `seed`.
    ///
    /// - `mlp`: 784-512-512-10 with ReLU.
    /// - `digits`: 64-128-64-10 with ReLU, the network of `examples/digits`.
    /// - `cnn`: two convolutions and a linear layer on 1×28×28; `lenet`: LeNet-5.
    /// - `resnet18`, `resnet50`, `vgg16`, `mobilenet-v2`, `densenet121` on 3×224×224: torchvision's.
    /// - `unet`: two classes for each pixel of 3×416×608.
    /// - `gpt-nano`, `gpt2` and its sizes, `llama-tiny`, `llama-3.2-1b` and other language models: predict the next
    ///   token for each token; see [`GptConfig`] and [`LlamaConfig`].
    /// - `bert-base`: predicts a token for each sequence; see [`Bert`].
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names.
    pub fn named(name: &str, seed: u64) -> Result<Self> {
        Self::with_options(name, seed, &ModelOptions::default())
    }

    /// Does what [`Model::named`] does, with other input sizes or numbers of classes.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the known names; [`Error::Setting`] for an option that the model does not have,
    /// or an option of 0.
    pub fn with_options(name: &str, seed: u64, options: &ModelOptions) -> Result<Self> {
        Self::over(Params::new(seed), name, options)
    }

    /// Does what [`Model::with_options`] does, with parameters registered in `params`, such as with adapters
    /// ([`Params::adapt`]).
    ///
    /// # Errors
    /// As [`Model::with_options`].
    pub fn over(params: Params, name: &str, options: &ModelOptions) -> Result<Self> {
        let ModelOptions { image, classes, seq } = *options;
        options.check()?;
        let sequence = sequence::named(name, &params, seq)?;
        let takes =
            |what: &str, not: &str| Err(Error::setting(name, format!("`{name}` takes {what}, {not}")));
        if let Some(sequence) = sequence {
            return Self::of_sequences(name.to_owned(), params, sequence, options);
        }
        if let Some(&(name, [c, h, w], paper)) = IMAGES.iter().find(|(other, ..)| *other == name) {
            if seq.is_some() {
                return takes("images", "so it has no sequence length");
            }
            let ([h, w], classes) = (image.unwrap_or([h, w]), classes.unwrap_or(paper));
            let network: Box<dyn Module + Send + Sync> = match name {
                "cnn" => Box::new(small::Cnn::new(&params, [c, h, w], classes)),
                "lenet" => Box::new(small::LeNet::new(&params, [c, h, w], classes)),
                "resnet18" => Box::new(ResNet::resnet18(&params, c, classes)),
                "resnet50" => Box::new(ResNet::resnet50(&params, c, classes)),
                "vgg16" => Box::new(vgg::Vgg::vgg16(&params, c, classes)),
                "mobilenet-v2" => Box::new(mobilenet::MobileNetV2::new(&params, c, classes)),
                "densenet121" => Box::new(densenet::DenseNet::densenet121(&params, c, classes)),
                _ => Box::new(unet::UNet::new(&params, c, classes)),
            };
            let labels = if name == "unet" { h * w } else { 1 };
            let network = Network::Numbers(vec![c, h, w], network);
            let (name, inputs) = (name.to_owned(), c * h * w);
            return Ok(Self { name, inputs, classes, labels, params, network, documents: false });
        }
        let mut sizes = match name {
            "mlp" => vec![784, 512, 512, 10],
            "digits" => vec![64, 128, 64, 10],
            _ => return Err(Error::unknown("model", name, &Self::NAMES)),
        };
        if image.is_some() || seq.is_some() {
            return takes(&format!("vectors of {}", sizes[0]), "not images or sequences");
        }
        if let (Some(classes), Some(last)) = (classes, sizes.last_mut()) {
            *last = classes;
        }
        let network = Network::Numbers(vec![sizes[0]], Box::new(Mlp::new(&params, &sizes)));
        let classes = sizes.last().copied().unwrap_or_default();
        let (name, inputs) = (name.to_owned(), sizes[0]);
        Ok(Self { name, inputs, classes, labels: 1, params, network, documents: false })
    }

    /// Builds the network of a folder that Hugging Face's `save_pretrained` wrote or that was downloaded from there, by its
    /// `config.json`: GPT-2, Llama, Mistral, Qwen 2 and 2.5, Qwen 3, Gemma 2 and 3 (text). Parameters are registered in `params` and start at random, without the
    /// files of weights: [`Session::load_with`](crate::exec::Session::load_with) reads them, with [`Model::rename`].
    /// Sequences have 2,048 tokens, or as many as the model was trained on if those are fewer, unless
    /// [`ModelOptions::seq`] says otherwise.
    ///
    /// # Errors
    /// [`Error::Setting`] for a file that is missing or damaged, and for what no model of this crate has, with the entry of
    /// `config.json`; for options as in [`Model::with_options`].
    #[cfg(feature = "safetensors")]
    pub fn open(params: Params, folder: impl AsRef<std::path::Path>, options: &ModelOptions) -> Result<Self> {
        let folder = folder.as_ref();
        let name = folder.file_name().map_or("model".into(), |name| name.to_string_lossy().into_owned());
        let path = folder.join("config.json");
        let file = path.display().to_string();
        let text = std::fs::read(&path).map_err(|e| Error::setting("config.json", format!("{file}: {e}")))?;
        Self::configured(params, name, config::read(&file, &text)?, options)
    }

    /// Does what [`Model::open`] does, with the text of a `config.json`. `name` is that of the model.
    ///
    /// # Errors
    /// As [`Model::open`].
    #[cfg(feature = "safetensors")]
    pub fn from_config(params: Params, name: &str, text: &[u8], options: &ModelOptions) -> Result<Self> {
        Self::configured(params, name.to_owned(), config::read(name, text)?, options)
    }

    #[cfg(feature = "safetensors")]
    fn configured(
        params: Params,
        name: String,
        config: config::Pretrained,
        options: &ModelOptions,
    ) -> Result<Self> {
        options.check()?;
        let sequence = sequence::of_config(config, &params, options.seq)?;
        Self::of_sequences(name, params, sequence, options)
    }

    fn of_sequences(
        name: String,
        params: Params,
        sequence: sequence::Built,
        options: &ModelOptions,
    ) -> Result<Self> {
        if options.image.is_some() || options.classes.is_some() {
            let message = format!(
                "`{name}` takes tokens, so it has no image size and no number of classes but its vocabulary"
            );
            return Err(Error::setting(name, message));
        }
        let sequence::Built { seq, vocabulary, labels, rename, network } = sequence;
        let network = Network::Tokens(network, rename);
        Ok(Self { name, inputs: seq, classes: vocabulary, labels, params, network, documents: false })
    }

    /// Returns how the names of tensors in Hugging Face's files map to those of this model; `None` leaves a tensor out. For
    /// [`Rename::By`](crate::exec::Rename::By).
    pub fn rename(&self) -> fn(&str) -> Option<String> {
        match &self.network {
            Network::Tokens(_, rename) => *rename,
            Network::Numbers(..) => |name| Some(name.to_owned()),
        }
    }

    /// Returns the parameters, on the host.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Returns the shape of a batch of inputs: `[batch]` followed by the shape of one input.
    pub fn input_shape(&self, batch: usize) -> Shape {
        let dims = match &self.network {
            Network::Numbers(sample, _) => [&[batch], &sample[..]].concat(),
            Network::Tokens(..) => vec![batch, self.inputs],
        };
        Shape::try_new(&dims).expect("at most four dimensions")
    }

    /// Computes logits `[.., classes]`, a row for each label, of an input of [`Model::input_shape`]. Numbers
    /// may also have shape `[batch, inputs]`.
    pub fn logits(&self, x: &Tensor) -> Tensor {
        match &self.network {
            Network::Numbers(_, network) => network.forward(&x.reshape(self.input_shape(x.dim(0)))),
            Network::Tokens(network, _) => network.logits(x),
        }
    }

    /// Makes this a model of rows with several documents each, as [`Documents::packed`](crate::data::Documents::packed) returns
    /// them: [`Model::loss`] declares the input `documents`, `u32 [batch, inputs, 2]`, too, and no token sees another document.
    ///
    /// # Errors
    /// [`Error::Setting`] for a model that does not predict a token for each token.
    pub fn of_documents(mut self) -> Result<Self> {
        self.documents = true;
        match &self.network {
            Network::Tokens(network, _) if network.cache_sizes().is_some() => Ok(self),
            _ => {
                let message =
                    format!("`{}` does not predict the next token: its rows hold no documents", self.name);
                Err(Error::setting("documents", message))
            }
        }
    }

    /// Computes the loss of a batch, cross-entropy: declares inputs `x` of [`Model::input_shape`], `f32` or
    /// token ids, and labels `y [batch · labels]`.
    pub fn loss(&self, trace: &Trace, batch: usize) -> Tensor {
        let x = self.input(trace, batch);
        let y = trace.labels("y", [batch.saturating_mul(self.labels)], self.classes as u32);
        match &self.network {
            Network::Numbers(..) => self.logits(&x).cross_entropy(&y),
            Network::Tokens(network, _) if self.documents => {
                let ends = trace.ids("documents", [batch, self.inputs, 2], self.inputs as u32 + 1);
                network.loss_of(&network.hidden_in(&x, &Context::within(&ends)), &y)
            }
            Network::Tokens(network, _) => network.loss(&x, &y),
        }
    }

    /// Computes the logits `[1, classes]` of the token after one position of a sequence, to generate text: declares inputs
    /// `x`, `u32 [1, inputs]`, and `at`, the position, `u32 [1]`. What is after the position changes nothing.
    /// [`Session::next_token`](crate::exec::Session::next_token) runs it. The trace reports a model that does not predict a
    /// token for each token as a mistake.
    #[track_caller]
    pub fn next_logits(&self, trace: &Trace) -> Tensor {
        let (x, at) = (self.input(trace, 1), trace.ids("at", [1], self.inputs as u32));
        match &self.network {
            Network::Tokens(network, _) if self.labels == self.inputs => network.logits_at(&x, &at),
            _ => x.mistake(format!("`{}` does not predict the next token", self.name), [1, self.classes]),
        }
    }

    /// Registers a KV cache.
    ///
    /// # Errors
    /// As [`KvCache::new`].
    pub fn kv_cache(&self, options: &CacheOptions) -> Result<KvCache> {
        match &self.network {
            Network::Tokens(network, _) => KvCache::new(&self.params, &**network, options),
            Network::Numbers(..) => {
                Err(Error::setting("cache", format!("`{}` takes no tokens: it has no KV cache", self.name)))
            }
        }
    }

    /// Computes the logits `[texts, classes]` of the token after one of `tokens` new tokens of each text: declares inputs `x`,
    /// the new tokens, `u32 [texts, tokens]`; `pages`, those of `cache` that each text has, `u32 [texts, n]` of `n` for its most
    /// tokens; `length`, the number of tokens before the new ones, whose keys and values are in these pages, `u32 [texts]`; and
    /// `at`, which of all new tokens is the last of each text, `u32 [texts]`; those after it change nothing.
    /// [`Decoder`](crate::exec::Decoder) runs such programs.
    #[track_caller]
    pub fn cached_logits(&self, trace: &Trace, cache: &KvCache, [texts, tokens]: [usize; 2]) -> Tensor {
        let x = trace.ids("x", [texts, tokens], self.classes as u32);
        let of_text = KvCache::pages_of(cache.tokens());
        let pages = trace.ids("pages", [texts, of_text], cache.pages() as u32 + 1);
        let length = trace.ids("length", [texts], cache.tokens() as u32 + 1);
        let at = trace.ids("at", [texts], texts.saturating_mul(tokens) as u32);
        match &self.network {
            Network::Tokens(network, _) => {
                let hidden = network.hidden_in(&x, &Context::after(cache, &pages, &length, &x));
                network.logits_of(&hidden, &at)
            }
            Network::Numbers(..) => {
                x.mistake(format!("`{}` takes no tokens", self.name), [texts, self.classes])
            }
        }
    }

    /// Returns the number of tokens in a sequence; `None` for a model over numbers.
    pub fn seq(&self) -> Option<usize> {
        matches!(self.network, Network::Tokens(..)).then_some(self.inputs)
    }

    pub(crate) fn input(&self, trace: &Trace, batch: usize) -> Tensor {
        match &self.network {
            Network::Numbers(..) => trace.input("x", self.input_shape(batch)),
            Network::Tokens(..) => trace.ids("x", self.input_shape(batch), self.classes as u32),
        }
    }

    /// Traces a training step for `batch` samples.
    ///
    /// # Errors
    /// [`Error::Setting`] for a batch of 0.
    pub fn train_step(&self, batch: usize) -> Result<TrainStep> {
        at_least_one(batch)?;
        TrainStep::trace(&self.params, |trace| self.loss(trace, batch))
    }

    /// Traces a forward pass for `batch` samples: input `x`, output `logits`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a batch of 0.
    pub fn forward(&self, batch: usize) -> Result<Forward> {
        at_least_one(batch)?;
        Forward::trace(&self.params, "logits", |trace| self.logits(&self.input(trace, batch)))
    }
}

fn at_least_one(batch: usize) -> Result<()> {
    if batch == 0 { Err(Error::setting("batch", "a batch of 0: it must be at least 1")) } else { Ok(()) }
}
