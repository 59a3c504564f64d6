//! `wgrad finetune`: trains a language model of a folder of Hugging Face, or adapters over it, on documents.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wgrad::compile::{PlanOptions, Recompute};
use wgrad::data::{Dataset, Documents, LastBatch, Loader, Subset};
use wgrad::device::Device;
use wgrad::dtype::FrozenStorage;
use wgrad::exec::{OnOom, ProgramId, Session};
use wgrad::graph::IGNORE;
use wgrad::models::Model;
use wgrad::optim::{Clip, Optimizer, Schedule};
use wgrad::train::{Callback, Checkpoint, Epoch, ProgressLine, Task, TrainOptions, Trainer};
use wgrad::{Bytes, Error, Result, report};

use crate::files::unusable;
use crate::model::Selected;
use crate::text::{Language, load, seq, writer};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    /// What to learn: a file of text, or of JSON lines (.jsonl), each an object with `text`, with `prompt` and `completion`,
    /// or with `messages`.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Fill rows with documents one after the other: fewer rows, in which a document sees those before it.
    #[arg(long)]
    pack: bool,
    /// Documents to evaluate on, as in --data; by default a part of those.
    #[arg(long, value_name = "FILE")]
    eval: Option<PathBuf>,
    /// Share of the rows of --data that are not trained on but evaluated, without --eval.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, conflicts_with = "eval")]
    held_out: f64,
    /// Passes over the data.
    #[arg(long, default_value_t = 1)]
    epochs: u64,
    /// Steps after which the model writes a sample and is saved, by default those of an epoch; fewer draw their rows by
    /// --seed, more are whole epochs.
    #[arg(long, value_name = "STEPS")]
    save_every: Option<u64>,
    /// Folder of what is learnt: an adapter in PEFT's layout with --lora, else a model like the one it was made from.
    #[arg(long, value_name = "FOLDER", default_value = "finetuned")]
    out: PathBuf,
    /// Go on from the checkpoint in --out.
    #[arg(long)]
    resume: bool,
    /// With --lora, write the model with its adapter added to it, for programs that know no adapters.
    #[arg(long, requires = "lora")]
    merge: bool,
    /// sgd, momentum, adam, adamw, lion, adafactor, adam8bit, amsgrad, nadam, radam, rmsprop, adagrad, adam-mini or
    /// muon.
    #[arg(long, default_value = "adamw")]
    optimizer: String,
    /// The highest learning rate, after a warm-up of 3 % of the steps; by default 0.0002 with --lora, else 0.00002.
    #[arg(long, value_name = "RATE")]
    lr: Option<f32>,
    /// Begins the sample that is written at each evaluation; by default the beginning of the data.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    #[command(flatten)]
    writer: writer::Options,
    #[command(flatten)]
    fitting: crate::fitting::Options,
    #[command(flatten)]
    failures: crate::failures::Options,
    #[command(flatten)]
    device: crate::device::Options,
}

/// Describes the options that other commands have as well, and hides those that belong to other networks or to several devices.
pub fn described(command: clap::Command) -> clap::Command {
    command.mut_args(|option| match option.get_id().as_str() {
        "model" => option
            .value_name("FOLDER")
            .help("Folder of Hugging Face, with config.json, tokenizer.json and weights"),
        "seq" => {
            option.help("Tokens of a row; 512, or as many as the model was trained on if those are fewer")
        }
        "batch" => option.help(format!("Rows of a step; {BATCH} by default")),
        "clip_norm" => option.help("Scale all gradients so that their norm is at most this; 1 by default"),
        "image" | "classes" | "dim" | "loss" | "bit_masks" | "ranks" | "shard" | "bucket" | "wire" => {
            option.hide(true)
        }
        _ => option,
    })
}

/// Rows of a step, unless --batch says otherwise.
const BATCH: usize = 4;
/// Tokens of the data that a sample begins with.
const BEGINNING: usize = 8;
/// The checkpoint in the folder of what is learnt.
const CHECKPOINT: &str = "checkpoint.safetensors";
/// Files that a model is used with, besides its weights.
const BESIDE: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
];

/// Runs the command. `quiet` draws no progress line. The exit status is 130 if the run was stopped.
pub fn run(mut options: Options, quiet: bool) -> Result<ExitCode> {
    let folder = PathBuf::from(&options.network.choice.model);
    check(&options, &folder)?;
    if Model::NAMES.contains(&options.network.choice.model.as_str()) {
        // A folder that is called as a model is.
        options.network.choice.model.insert_str(0, "./");
    }
    let batch = *options.network.batch.get_or_insert(BATCH);
    options.network.choice.seq = Some(seq(&folder, options.network.choice.seq)?);
    let language = Language::open(&folder)?;
    let selected = options.network.seeded_network(options.writer.seed)?;
    let Selected::Named(model) = &selected else {
        return Err(Error::Internal("a folder was opened as an ONNX file".to_owned()));
    };
    let data = data(&options, &language, model, batch)?;
    let device = options.device.open()?;
    println!("{} · {} · {}", options.network.title(&selected), options.optimizer, device.adapter().name);
    println!("{data}");
    let opened = open(&options, model, &data, &device);
    let mut trainer = options.failures.note(opened, |failure| failure.with_device(&device))?;
    load(trainer.session(), model, &folder)?;
    let checkpoint = options.out.join(CHECKPOINT);
    if options.resume {
        trainer.load(&checkpoint)?;
    }
    let (done, total) = (trainer.session().steps(), data.total());
    if done >= total {
        // It was stopped between the last step and the end.
        println!("all {total} steps of --epochs {} are made", options.epochs);
        return save(&options, &folder, trainer.session()).map(|()| ExitCode::SUCCESS);
    }
    println!("{}", report::Estimate::of(trainer.session().plan(ProgramId(0))?));
    println!(
        "{} are created on the device, with the programs that evaluate and write",
        Bytes(trainer.session().device_bytes())
    );
    let beginning = || data.beginning();
    let prompt = options.prompt.as_deref().map_or_else(beginning, |prompt| language.prompt(prompt, false))?;
    let mut progress = if quiet { ProgressLine::quiet() } else { ProgressLine::default() };
    progress = progress.counting("tokens", model.inputs);
    let mut sample = Sample { options: &options, language: &language, prompt, data: &data };
    let mut saved = Checkpoint {
        path: checkpoint.clone(),
        every: data.every,
        without_frozen: true,
        ..Checkpoint::default()
    };
    stop_on_signals(&trainer);
    let fitted = trainer.fit(
        data.rounds - done / data.steps,
        (!data.test.is_empty()).then_some(&*data.test),
        &mut [&mut progress, &mut saved, &mut sample],
    );
    match options.failures.note(fitted, |failure| failure.with_session(trainer.session())) {
        Ok(_) => save(&options, &folder, trainer.session()).map(|()| ExitCode::SUCCESS),
        Err(Error::Stopped { steps }) => {
            let path = checkpoint.display();
            eprintln!("stopped after step {steps}; the same command with --resume goes on from {path}");
            Ok(ExitCode::from(130))
        }
        Err(error) => Err(error),
    }
}

/// Refuses what can be refused before anything is read.
fn check(options: &Options, folder: &Path) -> Result<()> {
    let wrong = |message: String| Err(Error::setting("command line", message));
    if !folder.is_dir() {
        let message =
            "is no folder; finetune needs one of Hugging Face, with config.json, tokenizer.json and weights";
        return wrong(format!("{} {message}", folder.display()));
    }
    if options.fitting.ranks() != 1 {
        return wrong("finetune trains on one device: --ranks 1".to_owned());
    }
    if options.epochs == 0 || options.save_every == Some(0) {
        return wrong("--epochs and --save-every must be at least 1".to_owned());
    }
    if !(0.0..1.0).contains(&options.held_out) {
        return wrong(format!("--held-out {}: it must be at least 0 and below 1", options.held_out));
    }
    options.writer.check()?;
    let checkpoint = options.out.join(CHECKPOINT);
    match (options.resume, checkpoint.exists()) {
        (true, false) => wrong(format!("--resume: there is no {}", checkpoint.display())),
        (false, true) => wrong(format!(
            "{} is there already: --resume goes on from it, --out FOLDER begins elsewhere",
            checkpoint.display()
        )),
        _ => std::fs::create_dir_all(&options.out).map_err(|e| unusable(&options.out, &e)),
    }
}

/// The rows to learn and to evaluate on, and how often.
struct Data {
    documents: Arc<Documents>,
    train: Arc<dyn Dataset>,
    test: Arc<dyn Dataset>,
    /// Rows of a step.
    batch: usize,
    seq: usize,
    /// Steps of a round, after which the model is evaluated: of an epoch, or fewer.
    steps: u64,
    rounds: u64,
    /// Rounds after which the model is saved and writes a sample.
    every: u64,
}

fn data(options: &Options, language: &Language, model: &Model, batch: usize) -> Result<Data> {
    let read = |path: &Path| -> Result<Arc<Documents>> {
        let documents = language.documents(path, model.inputs, model.classes)?;
        Ok(Arc::new(if options.pack { documents.packed() } else { documents }))
    };
    let (documents, seed) = (read(&options.data)?, options.writer.seed);
    let (train, test): (Arc<dyn Dataset>, Arc<dyn Dataset>) = match &options.eval {
        Some(path) => (Arc::clone(&documents) as _, read(path)?),
        None => {
            let (train, test) = Subset::split(Arc::clone(&documents) as _, 1.0 - options.held_out, seed);
            (Arc::new(train), Arc::new(test))
        }
    };
    let steps = (train.len() / batch.max(1)) as u64;
    if steps == 0 {
        let message = format!(
            "{} rows of {} tokens to train on are no batch of {batch}: --batch or --seq can be smaller, --held-out 0 leaves \
             all to training",
            train.len(),
            model.inputs
        );
        return Err(Error::Data { what: options.data.display().to_string(), message });
    }
    // Saved several times in an epoch, or after several epochs.
    let (total, often) = (options.epochs * steps, options.save_every.unwrap_or(steps));
    let every = (often / steps).max(1);
    let steps = steps.min(often);
    let (seq, rounds) = (model.inputs, total.div_ceil(steps));
    Ok(Data { documents, train, test, batch, seq, steps, rounds, every })
}

impl Data {
    /// Returns the steps of the whole run.
    fn total(&self) -> u64 {
        self.rounds * self.steps
    }

    /// Returns what the first row does not learn, such as a question, or else its first tokens.
    fn beginning(&self) -> Result<Vec<u32>> {
        let row = self.train.batch(&[0])?;
        let (x, y) = (row.u32("x"), row.u32("y"));
        let given = y.iter().take_while(|label| **label == IGNORE).count();
        let count = if given > 0 { given + 1 } else { BEGINNING };
        Ok(x[..count.min(x.len())].to_vec())
    }
}

impl std::fmt::Display for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { documents, seq, .. } = self;
        let (tokens, learnt, filled) = (documents.tokens(), documents.learnt(), 100.0 * documents.filled());
        let rows = self.train.len();
        write!(
            f,
            "{tokens} tokens, {learnt} to learn; {rows} rows of {seq} to train on, {filled:.0} % filled; "
        )?;
        match self.test.len() {
            0 => f.write_str("none to evaluate on"),
            rows => write!(f, "{rows} rows to evaluate on"),
        }
    }
}

fn open(options: &Options, model: &Model, data: &Data, device: &Device) -> Result<Trainer> {
    let usual = if options.network.lora.is_some() { 2e-4 } else { 2e-5 };
    let optimizer = Optimizer::named(&options.optimizer)?.with_learning_rate(options.lr.unwrap_or(usual));
    let mut plan = PlanOptions {
        precision: options.network.precision()?,
        weights: options.network.weights()?,
        fuse: !options.network.no_fuse,
        ..options.fitting.plan_options(optimizer)?
    };
    if plan.clip == Clip::Off {
        plan.clip = Clip::Norm(1.0);
    }
    // The budget is for the whole session: the trainer finds plans that fit together.
    if let Some(budget) = plan.budget.take() {
        device.set_budget(Some(budget));
        if plan.recompute == Recompute::Auto {
            plan.recompute = Recompute::Off;
        }
    }
    let loader = Loader::new(Arc::clone(&data.train), data.batch)?
        .shuffled(options.writer.seed)
        .last_batch(LastBatch::Drop)
        .batches_per_epoch(data.steps as usize);
    let loss = |trace: &_, samples| model.loss(trace, samples);
    let task = Task::from(model)
        .program("loss", loss)
        .program("next", |trace, _| model.next_logits(trace))
        .metric("held out", "loss", |loss, batch| f64::from(loss[0]) * batch.samples() as f64);
    let total = data.total();
    let schedule = Schedule::Cosine { warmup: total.div_ceil(33), total, floor: 0.1 };
    let train = TrainOptions {
        plan,
        schedule,
        eval_batch: Some(1),
        on_oom: OnOom::Refit,
        tune: options.device.trainer_tuning()?,
        plateau: None,
    };
    Trainer::new(device, task, loader, &train).map_err(|error| match error {
        Error::OverBudget { what, needed, budget, peak_at, largest, help } => {
            let help = format!(
                "{help}; a smaller --seq, and with --lora or --freeze `--frozen-weights nf4`, take less"
            );
            Error::OverBudget { what, needed, budget, peak_at, largest, help }
        }
        other => other,
    })
}

/// Writes the adapter or the model, with the files that it is used with.
fn save(options: &Options, folder: &Path, session: &mut Session) -> Result<()> {
    let out = &options.out;
    let whole = options.network.lora.is_none() || options.merge;
    if options.network.lora.is_some() {
        session.save_adapter(out)?;
        println!("the adapter is in {}", out.display());
    }
    if whole {
        let path = out.join("model.safetensors");
        if options.merge {
            session.save_merged(&path)?
        } else {
            session.save(&path)?
        }
        for name in BESIDE {
            let (from, to) = (folder.join(name), out.join(name));
            if from.is_file() {
                std::fs::copy(&from, &to).map_err(|e| unusable(&to, &e))?;
            }
        }
        println!("the model is in {}", out.display());
    }
    let arguments = match whole {
        true => out.display().to_string(),
        false => {
            // An adapter belongs to the base as it was trained over.
            let stored = options.network.frozen_weights.map(FrozenStorage::name);
            let stored = stored.map_or(String::new(), |name| format!(" --weights {name}"));
            format!("{}{stored} --adapters {}", folder.display(), out.display())
        }
    };
    println!("it writes text: wgrad generate {arguments} --prompt TEXT");
    Ok(())
}

/// Lets the model write at each evaluation.
struct Sample<'a> {
    options: &'a Options,
    language: &'a Language,
    prompt: Vec<u32>,
    data: &'a Data,
}

impl Callback for Sample<'_> {
    fn on_epoch(&mut self, epoch: &Epoch, trainer: &mut Trainer) -> Result<()> {
        let done = epoch.epoch + 1;
        if !done.is_multiple_of(self.data.every) && done < self.data.rounds {
            return Ok(());
        }
        let (program, steps) = (trainer.program("next")?, trainer.session().steps());
        let loss = match epoch.metric {
            Some(metric) => format!("{:.4} held out, perplexity {:.2}", metric.value, metric.value.exp()),
            None => format!("{:.4}", epoch.loss),
        };
        println!("step {steps}: loss {loss}");
        let mut text = self.language.decode(&self.prompt)?;
        let prompt = self.prompt.clone();
        let session = trainer.session();
        self.options.writer.write(
            self.language,
            prompt,
            |text, sampling| session.next_token(program, text, sampling).map(Some),
            |new| {
                text.push_str(new);
                Ok(())
            },
        )?;
        println!("{}\n", text.trim());
        Ok(())
    }
}

/// Stops the run after its current step on SIGINT (Ctrl-C) or SIGTERM; a second signal ends the process.
fn stop_on_signals(trainer: &Trainer) {
    let (stop, asked) = (trainer.stop(), AtomicBool::new(false));
    let handler = move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        stop.request();
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        log::warn!("Ctrl-C will end the run without saving: {error}");
    }
}
