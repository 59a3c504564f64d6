//! What the examples train, and how. The page of `web/` trains the same.
#![allow(dead_code, reason = "each example uses a part")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use wgrad::compile::PlanOptions;
use wgrad::data::{Characters, Dataset, Loader, Subset, Table, Tokens};
use wgrad::graph::{Params, Tensor, Trace};
use wgrad::models::{Gpt, GptConfig, Model, ResNet, Sequence};
use wgrad::nn::Module;
use wgrad::optim::{AdamW, Clip, Optimizer, Schedule};
use wgrad::train::{Task, TrainOptions};
use wgrad::{Error, Result};

/// A network to train, and the data.
pub struct Prepared<'a> {
    pub task: Task<'a>,
    pub loader: Loader,
    pub options: TrainOptions,
    /// What the network is measured on, and never learns from.
    pub test: Box<dyn Dataset>,
}

/// Returns the handwritten digits of `examples/data/digits.csv.gz`, unpacked, with pixels in [0, 1].
pub fn read_digits(csv: &str) -> Result<Table> {
    Ok(Table::from_csv("digits.csv", csv, 64, 10)?.scaled(1.0 / 16.0))
}

/// Returns the rate of a run of `total` steps: it rises in the first `1 / rise` of them and falls to `floor`.
fn cosine(total: u64, rise: u64, floor: f32) -> Schedule {
    Schedule::Cosine { warmup: total / rise, total, floor }
}

/// The optimizer of [`digits`].
pub fn digits_optimizer() -> Optimizer {
    AdamW { lr: 4e-3, ..AdamW::default() }.into()
}

/// A network of linear layers, `Model::named("digits", 0)`, on the handwritten digits.
pub fn digits(
    model: &Model,
    (train, test): (Table, Table),
    (epochs, batch): (u64, usize),
    plan: PlanOptions,
) -> Result<Prepared<'_>> {
    let loader = Loader::new(Arc::new(train), batch)?.shuffled(0);
    let schedule = cosine(epochs * loader.batches() as u64, 20, 0.01);
    let options = TrainOptions { plan, schedule, ..TrainOptions::default() };
    Ok(Prepared { task: model.into(), loader, options, test: Box::new(test) })
}

/// A small residual network on images of `[c, h, w]`, with its stages' channels and blocks.
pub fn residual<'a>(
    params: &'a Params,
    ([c, h, w], stages): ([usize; 3], &[(usize, usize)]),
    (train, test): (Table, Table),
    (epochs, batch): (u64, usize),
) -> Result<Prepared<'a>> {
    let resnet = Arc::new(ResNet::small(params, c, stages, train.classes()));
    // A table has flat samples.
    let network = move |x: &Tensor| resnet.forward(&x.reshape([x.dim(0), c, h, w]));
    let task = Task::classifier(params, train.sample_len(), train.classes(), network);
    let loader = Loader::new(Arc::new(train), batch)?.shuffled(0);
    let schedule = cosine(epochs * loader.batches() as u64, 10, 0.01);
    let optimizer = AdamW { lr: 5e-3, weight_decay: 0.05, ..AdamW::default() }.into();
    let plan = PlanOptions { optimizer, ..PlanOptions::default() };
    let options = TrainOptions { plan, schedule, ..TrainOptions::default() };
    Ok(Prepared { task, loader, options, test: Box::new(test) })
}

/// The images of the digits, and the stages of the network for them.
pub const DIGIT_IMAGES: ([usize; 3], &[(usize, usize)]) = ([1, 8, 8], &[(16, 1), (32, 1)]);

/// How a text is learnt.
pub struct TextOptions {
    /// Windows of text in a step.
    pub batch: usize,
    /// Training steps, rounded up to a multiple of [`TEXT_EPOCHS`].
    pub steps: u64,
    /// The highest learning rate.
    pub rate: f32,
    /// Decides the order of windows.
    pub seed: u64,
}

impl TextOptions {
    pub fn total(&self) -> u64 {
        self.steps.div_ceil(TEXT_EPOCHS) * TEXT_EPOCHS
    }
}

/// How often a network of characters is evaluated.
pub const TEXT_EPOCHS: u64 = 8;
/// Batches of an evaluation, always the same ones.
const EVALUATION: usize = 8;

/// A GPT on the characters of a text. Program `next` has the logits of the character after one position of a window.
pub fn text<'a>(
    params: &'a Params,
    config: &'a GptConfig,
    tokens: &Tokens,
    (options, plan): (&TextOptions, PlanOptions),
) -> Result<Prepared<'a>> {
    let (context, vocabulary) = (config.context, config.vocabulary as u32);
    let (learnt, held_out) = tokens.split(0.9);
    let total = options.total();
    let windows = Arc::new(learnt.windows(context)?);
    let loader = Loader::new(windows, options.batch)?.shuffled(options.seed);
    let loader = loader.batches_per_epoch((total / TEXT_EPOCHS) as usize);
    let test = Subset::evenly(Arc::new(held_out.windows(context)?), EVALUATION * options.batch);
    let gpt = Arc::new(Gpt::new(params, config)?);
    let writes = Arc::clone(&gpt);
    let loss = move |trace: &Trace, samples: usize| {
        let x = trace.ids("x", [samples, context], vocabulary);
        gpt.loss(&x, &trace.labels("y", [samples * context], vocabulary))
    };
    let task = Task::new(params, loss.clone())
        .program("next", move |trace, _| next(&writes, config, trace))
        .program("loss", loss)
        .metric("nats per character", "loss", |loss, batch| f64::from(loss[0]) * batch.samples() as f64);
    let optimizer = AdamW { lr: options.rate, weight_decay: 0.1, ..AdamW::default() }.into();
    let plan = PlanOptions { optimizer, clip: Clip::Norm(1.0), ..plan };
    let options = TrainOptions { plan, schedule: cosine(total, 20, 0.1), ..TrainOptions::default() };
    Ok(Prepared { task, loader, options, test: Box::new(test) })
}

/// Computes the logits of the character after one position of a window.
pub fn next(gpt: &Gpt, config: &GptConfig, trace: &Trace) -> Tensor {
    let x = trace.ids("x", [1, config.context], config.vocabulary as u32);
    gpt.logits_at(&x, &trace.ids("at", [1], config.context as u32))
}

/// Notes of a weights file that describe its network and characters.
const NOTES: [&str; 5] = ["characters", "context", "layers", "heads", "width"];

/// The network of a text and the characters that it knows.
pub struct Description {
    pub config: GptConfig,
    pub characters: Characters,
}

impl Description {
    /// Returns the notes to save with the weights.
    pub fn notes(&self) -> BTreeMap<String, String> {
        let GptConfig { context, layers, heads, width, .. } = self.config;
        let numbers = [context, layers, heads, width].map(|number| number.to_string());
        let values = std::iter::once(self.characters.as_text()).chain(numbers);
        NOTES.map(str::to_owned).into_iter().zip(values).collect()
    }

    /// Reads the description from the notes of a weights file.
    pub fn of(file: &str, notes: &BTreeMap<String, String>) -> Result<Self> {
        let wrong = |message: String| Error::Weights { path: Path::new(file).to_owned(), message };
        let note = |name: &str| {
            notes
                .get(name)
                .ok_or_else(|| wrong(format!("it has no note `{name}`: char_gpt's own files have one")))
        };
        let number = |name: &str| {
            let text = note(name)?;
            let number = text.parse::<usize>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| wrong(format!("its note `{name}` is {text}: not a number that can be used")))
        };
        let characters = Characters::of(note("characters")?);
        let config = GptConfig {
            vocabulary: characters.len(),
            context: number("context")?,
            layers: number("layers")?,
            heads: number("heads")?,
            width: number("width")?,
            dropout: 0.0,
        };
        Ok(Self { config, characters })
    }
}
