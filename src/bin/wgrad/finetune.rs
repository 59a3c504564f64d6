//! `wgrad finetune`: trains a language model of a folder of Hugging Face, or adapters over it, on documents.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wgrad::compile::{PlanOptions, Recompute, Shard};
use wgrad::data::{Dataset, Documents, LastBatch, Loader, Subset};
use wgrad::device::Device;
use wgrad::dtype::{DType, FrozenStorage};
use wgrad::exec::{OnOom, ProgramId, SaveOptions, Transport};
use wgrad::graph::IGNORE;
use wgrad::models::Model;
use wgrad::optim::{Clip, Optimizer, Schedule};
use wgrad::train::{Callback, Checkpoint, Epoch, ProgressLine, Task, TrainOptions, Trainer};
use wgrad::{Bytes, Error, Result, report};

use crate::files::unusable;
use crate::model::Selected;
use crate::ranks::{self, Rank};
use crate::text::{Language, load, seq, writer};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    /// What to learn: a file of text, or of JSON lines (.jsonl), each an object with `text`, with `prompt` and `completion`,
    /// or with `messages`.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Fill rows with documents one after the other, which do not see one another: fewer rows.
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
    /// Element type of the model's weights in its file: f32, f16 or bf16.
    #[arg(long, value_name = "FORMAT", default_value = "f32", value_parser = crate::generate::number_format)]
    save_as: DType,
    /// sgd, momentum, adam, adamw, lion, adafactor, adam8bit, adam4bit, amsgrad, nadam, radam, rmsprop, adagrad, adam-mini,
    /// muon, apollo or apollo-mini.
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

/// Describes the options that other commands have as well, and hides those that belong to other networks.
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
        "image" | "classes" | "dim" | "loss" | "bit_masks" => option.hide(true),
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
    let title = options.network.title(&selected);
    let Selected::Named(mut model) = selected else {
        return Err(Error::Internal("a folder was opened as an ONNX file".to_owned()));
    };
    if options.pack {
        model = model.of_documents()?;
    }
    let data = data(&options, &language, &model, batch)?;
    let run = Run {
        options: &options,
        folder: &folder,
        title: &title,
        language: &language,
        model: &model,
        data: &data,
        quiet,
    };
    ranks::on_each(options.fitting.ranks(), |rank| run.on_rank(rank))
}

/// What all ranks of a run have.
struct Run<'a> {
    options: &'a Options,
    folder: &'a Path,
    title: &'a str,
    language: &'a Language,
    model: &'a Model,
    data: &'a Data,
    quiet: bool,
}

impl Run<'_> {
    /// Trains on one rank, or on the only device. Rank 0 prints and writes; all take part in what needs parameters of which
    /// each has a share.
    fn on_rank(&self, rank: Option<Rank>) -> Result<ExitCode> {
        let Self { options, data, quiet, .. } = *self;
        let (mut trainer, device) = match rank {
            None => self.open(0, None)?,
            Some(rank) => {
                let ((mut trainer, device), transport) =
                    rank.open(|local, others| self.open(local, Some(others)))?;
                trainer.set_transport(transport)?;
                (trainer, device)
            }
        };
        let prints = trainer.rank() == 0;
        if prints {
            println!("{} · {} · {}", self.title, options.optimizer, device.adapter().name);
            println!("{data}");
        }
        load(trainer.session(), self.model, self.folder)?;
        let checkpoint = options.out.join(CHECKPOINT);
        if options.resume {
            trainer.load(&checkpoint)?;
        }
        let (done, total) = (trainer.session().steps(), data.total());
        if done >= total {
            // It was stopped between the last step and the end.
            if prints {
                println!("all {total} steps of --epochs {} are made", options.epochs);
            }
            return self.save(&mut trainer).map(|()| ExitCode::SUCCESS);
        }
        if prints {
            println!("{}", report::Estimate::of(trainer.session().plan(ProgramId(0))?));
            println!(
                "{} are created on {}, with the programs that evaluate and write",
                Bytes(trainer.session().device_bytes()),
                if options.fitting.ranks() > 1 { "the device of rank 0" } else { "the device" },
            );
        }
        let mut progress = if quiet { ProgressLine::quiet() } else { ProgressLine::default() };
        progress = progress.counting("tokens", self.model.inputs);
        let mut sample = Sample { run: self, prompt: self.prompt()? };
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
            Ok(_) => self.save(&mut trainer).map(|()| ExitCode::SUCCESS),
            Err(Error::Stopped { steps }) => {
                if prints {
                    let path = checkpoint.display();
                    eprintln!(
                        "stopped after step {steps}; the same command with --resume goes on from {path}"
                    );
                }
                Ok(ExitCode::from(130))
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a rank; `local` is its number among those of its machine.
    fn open(&self, local: u32, others: Option<&mut dyn Transport>) -> Result<(Trainer, Device)> {
        let Self { options, model, data, .. } = *self;
        let device = options.device.open_number(local as usize)?;
        let usual = if options.network.lora.is_some() { 2e-4 } else { 2e-5 };
        let optimizer = Optimizer::named(&options.optimizer)?.with_learning_rate(options.lr.unwrap_or(usual));
        let mut plan = PlanOptions {
            precision: options.network.precision()?,
            weights: options.network.weights()?,
            fuse: !options.network.no_fuse,
            ..options.fitting.plan_options(optimizer, others.map(|others| (&device, others)))?
        };
        if plan.clip == Clip::Off {
            plan.clip = Clip::Norm(1.0);
        }
        let several = plan.parallel.ranks > 1;
        if several {
            // No rank may change its plan: the budget is for the training step.
            if plan.budget.is_some() && plan.recompute == Recompute::Off {
                plan.recompute = Recompute::Auto;
            }
        } else if let Some(budget) = plan.budget.take() {
            // The budget is for the whole session: the trainer finds plans that fit together.
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
            on_oom: if several { OnOom::Fail } else { OnOom::Refit },
            tune: options.device.trainer_tuning()?,
            plateau: None,
        };
        let trainer = Trainer::new(&device, task, loader, &train).map_err(|error| match error {
            Error::OverBudget { what, needed, budget, peak_at, largest, help } => {
                let help = format!(
                    "{help}; a smaller --seq, and with --lora or --freeze `--frozen-weights nf4`, take less"
                );
                Error::OverBudget { what, needed, budget, peak_at, largest, help }
            }
            other => other,
        });
        Ok((options.failures.note(trainer, |failure| failure.with_device(&device))?, device))
    }

    /// Writes the adapter or the model, with the files that it is used with.
    fn save(&self, trainer: &mut Trainer) -> Result<()> {
        if !self.reads_parameters(trainer) {
            return Ok(());
        }
        let Self { options, folder, .. } = *self;
        let (prints, session, out) = (trainer.rank() == 0, trainer.session(), &options.out);
        let whole = options.network.lora.is_none() || options.merge;
        if options.network.lora.is_some() {
            session.save_adapter(out)?;
        }
        if whole {
            let path = out.join("model.safetensors");
            let (dtype, merged) = (Some(options.save_as), options.merge);
            session.save_with(&path, &SaveOptions { dtype, merged, ..SaveOptions::default() })?;
        }
        if !prints {
            return Ok(());
        }
        if options.network.lora.is_some() {
            println!("the adapter is in {}", out.display());
        }
        if whole {
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

    /// Returns the tokens that a sample begins with.
    fn prompt(&self) -> Result<Vec<u32>> {
        let prompt = self.options.prompt.as_deref();
        prompt.map_or_else(|| self.data.beginning(), |prompt| self.language.prompt(prompt, false))
    }

    /// Whether a rank takes part in what reads all parameters: rank 0 does, and each that has a share of them.
    fn reads_parameters(&self, trainer: &Trainer) -> bool {
        let fitting = &self.options.fitting;
        trainer.rank() == 0 || fitting.tensor > 1 || fitting.shard == Shard::Parameters.name()
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

/// Lets the model write at each evaluation.
struct Sample<'a> {
    run: &'a Run<'a>,
    prompt: Vec<u32>,
}

impl Callback for Sample<'_> {
    fn on_epoch(&mut self, epoch: &Epoch, trainer: &mut Trainer) -> Result<()> {
        let Run { options, language, data, .. } = *self.run;
        let done = epoch.epoch + 1;
        let due = done.is_multiple_of(data.every) || done >= data.rounds;
        if !due || !self.run.reads_parameters(trainer) {
            return Ok(());
        }
        let (program, steps, prints) =
            (trainer.program("next")?, trainer.session().steps(), trainer.rank() == 0);
        if prints {
            match epoch.metric {
                Some(metric) => {
                    println!(
                        "step {steps}: loss {:.4} held out, perplexity {:.2}",
                        metric.value,
                        metric.value.exp()
                    );
                }
                None => println!("step {steps}: loss {:.4}", epoch.loss),
            }
        }
        let mut text = language.decode(&self.prompt)?;
        let session = trainer.session();
        options.writer.write(
            language,
            std::slice::from_ref(&self.prompt),
            usize::MAX,
            |texts| {
                texts.iter().map(|(text, sampling)| session.next_token(program, text, sampling)).collect()
            },
            |_, new| {
                text.push_str(new.unwrap_or_default());
                Ok(())
            },
        )?;
        if prints {
            println!("{}\n", text.trim());
        }
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
    match ctrlc::set_handler(handler) {
        // Another rank of this process has set one: a stop of one is a stop of all.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => {}
        Err(error) => log::warn!("Ctrl-C will end the run without saving: {error}"),
    }
}
