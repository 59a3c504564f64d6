//! Trains a character-level GPT on a text, and lets it write as it learns.
//!
//! `cargo run --release --example char_gpt` learns from this crate's own source files. Four processes, with the feature `mpi`:
//! `mpirun -n 4 cargo run --release --features mpi --example char_gpt`.

mod corpus;
mod folder;
#[path = "../support/mod.rs"]
mod support;
mod writer;

use std::path::Path;
use std::time::Instant;

use support::Arguments;
use support::tasks::{self, Description, Prepared, TEXT_EPOCHS, TextOptions};
use wgrad::compile::{Forward, Parallel, PlanOptions, Shard, Shares};
use wgrad::data::Characters;
use wgrad::exec::{ProgramId, Sampling, Session, read_notes, shares_by_memory};
use wgrad::graph::Params;
use wgrad::models::{Gpt, GptConfig};
use wgrad::train::{Callback, Checkpoint, Epoch, Trainer};
use wgrad::{Error, Result, report};
use writer::Writer;

const HELP: &str = "\
Trains a character-level GPT on a text, and lets it write as it learns.

usage: char_gpt [--text FILE] [--steps N] [--save FILE] [--resume FILE] [--folder FOLDER]
       char_gpt --sample FILE [--prompt TEXT] [--length N]

  --text FILE        the text to learn from; without it, this crate's own source files
  --steps N          training steps (1000), rounded up to a multiple of 8
  --batch N          windows of text in a step (4)
  --parts N          micro-batches that they are cut into; as many as ranks by default
  --shard WAY        what each rank keeps a part of: none, optimizer or parameters (none)
  --tensor N         ranks that compute each layer together: 1, or all (1)
  --shares LIST      micro-batches of each rank: even; 3,1; by memory, 24GB,8GB; auto, by that of the adapters (even)
  --context N        characters that the network sees (64)
  --layers N         blocks (4)
  --heads N          attention heads in a block (4)
  --width N          elements of the vector that stands for a character (128)
  --rate X           the highest learning rate (0.002)
  --save FILE        write weights and optimizer state there eight times (safetensors)
  --folder FOLDER    at the end, write the network there as Hugging Face's programs and wgrad finetune read it
  --resume FILE      go on from such a file, to --steps in all
  --sample FILE      train nothing: let the network of such a file write
  --prompt TEXT      what it goes on from (a new line)
  --length N         characters to write (200, and 150 while it trains)
  --temperature X    0 takes the likeliest character, 1 draws as the network expects (0.7)
  --seed N           decides weights, windows and what is written (0)
  --adapter NAME     part of an adapter's name; the best one by default
  --quiet            no progress line";

fn main() -> std::process::ExitCode {
    support::main(run)
}

fn run() -> Result<()> {
    let Some(arguments) = Arguments::parse(HELP)? else { return Ok(()) };
    let writer = |length| -> Result<Writer> {
        Ok(Writer {
            prompt: arguments.text("--prompt").unwrap_or("\n").to_owned(),
            length: arguments.number("--length", length)?,
            sampling: Sampling {
                temperature: arguments.number("--temperature", 0.7)?,
                seed: arguments.number("--seed", 0)?,
                ..Sampling::default()
            },
        })
    };
    match arguments.text("--sample") {
        Some(file) => sample(&arguments, file, &writer(200)?),
        None => train(&arguments, &writer(150)?),
    }
}

fn sample(arguments: &Arguments, file: &str, writer: &Writer) -> Result<()> {
    let description = Description::of(file, &read_notes(file)?)?;
    let params = Params::new(0);
    let gpt = Gpt::new(&params, &description.config)?;
    let forward = Forward::trace(&params, "next", |trace| tasks::next(&gpt, &description.config, trace))?;
    let device = arguments.device(0)?;
    let mut session = Session::new(&device, &forward.plan(device.limits())?)?;
    session.load(file)?;
    println!("{}", writer.write(&mut session, ProgramId(0), &description.characters)?);
    Ok(())
}

/// Returns the characters of the text and the sizes of the command line, or both from the file to resume
/// from.
fn describe(arguments: &Arguments, text: &str) -> Result<Description> {
    if let Some(file) = arguments.text("--resume") {
        let sizes = ["--context", "--layers", "--heads", "--width"];
        if let Some(size) = sizes.into_iter().find(|size| arguments.text(size).is_some()) {
            return Err(Error::setting(
                "command line",
                format!("{size} with --resume: {file} says how large the network is"),
            ));
        }
        return Description::of(file, &read_notes(file)?);
    }
    let characters = Characters::of(text);
    let config = GptConfig {
        vocabulary: characters.len(),
        context: arguments.number("--context", 64)?,
        layers: arguments.number("--layers", 4)?,
        heads: arguments.number("--heads", 4)?,
        width: arguments.number("--width", 128)?,
        dropout: 0.0,
    };
    Ok(Description { config, characters })
}

fn train(arguments: &Arguments, writer: &Writer) -> Result<()> {
    let start = Instant::now();
    let text = corpus::read(arguments.text("--text"))?;
    let description = describe(arguments, &text)?;
    let (characters, context) = (&description.characters, description.config.context);
    let all = characters.encode(arguments.text("--text").unwrap_or("the source files"), &text)?;
    let options = TextOptions {
        batch: arguments.number("--batch", 4)?,
        steps: arguments.number("--steps", 1000u64)?,
        rate: arguments.number("--rate", 2e-3)?,
        seed: writer.sampling.seed,
    };
    let (total, per_epoch) = (options.total(), options.total() / TEXT_EPOCHS);
    let params = Params::new(options.seed);
    let mut rank = support::rank()?;
    let device = arguments.device(rank.as_ref().map_or(0, |rank| rank.local))?;
    let parallel = rank
        .as_ref()
        .map_or(Parallel::default(), |rank| Parallel::of(rank.transport.rank(), rank.transport.ranks()));
    let shard = Shard::named(arguments.text("--shard").unwrap_or("none"))?;
    let parallel = Parallel { shard, tensor: arguments.number("--tensor", 1)?, ..parallel };
    let accumulate = arguments.number("--parts", parallel.data_ranks())?;
    let shares = match (arguments.text("--shares").unwrap_or("even"), &mut rank) {
        ("auto", Some(rank)) => shares_by_memory(&mut *rank.transport, (&device, None), accumulate)?,
        (listed, _) => Shares::named(listed, accumulate)?,
    };
    let parallel = Parallel { shares, ..parallel };
    let plan = PlanOptions { accumulate, parallel, ..PlanOptions::default() };
    let prepared = tasks::text(&params, &description.config, &all, (&options, plan))?;
    let (prints, sharded) = (parallel.rank == 0, parallel.splits_parameters());
    if prints {
        let (all, different, parameters) = (all.len(), characters.len(), params.count());
        println!("{device}\n{all} characters, {different} different ones; {parameters} parameters\n");
    }
    let (mut progress, mut monitor) = (support::progress(arguments), support::monitor());
    let Prepared { task, loader, options: train, test } = prepared;
    let mut trainer = Trainer::watched(&device, task, loader, &train, &mut [&mut monitor])?;
    let plan = trainer.session().plan(ProgramId(0))?;
    if prints {
        let ranks = if parallel.ranks > 1 { format!(" on {} ranks", parallel.ranks) } else { String::new() };
        println!("a step of {} windows of {context}{ranks}; {}", options.batch, report::Estimate::of(plan));
    }
    if let Some(rank) = rank {
        trainer.set_transport(rank.transport)?;
    }
    if let Some(file) = arguments.text("--resume") {
        trainer.load(file)?;
    }
    let done = trainer.session().steps();
    if done >= total {
        return Err(Error::setting(
            "command line",
            format!("--steps {}: {done} steps are made already; ask for more", options.steps),
        ));
    }
    // With a share of the parameters each, the ranks run the network together.
    let mut look = (prints || sharded).then_some(Look { start, writer, description: &description, prints });
    let mut checkpoint = arguments.text("--save").map(|path| Checkpoint {
        path: path.into(),
        notes: description.notes(),
        ..Checkpoint::default()
    });
    let mut callbacks: Vec<&mut dyn Callback> = vec![&mut progress, &mut monitor];
    callbacks.extend(look.as_mut().map(|look| look as &mut dyn Callback));
    callbacks.extend(checkpoint.as_mut().map(|checkpoint| checkpoint as &mut dyn Callback));
    support::stop_on_signals(&trainer);
    trainer.fit(TEXT_EPOCHS - done / per_epoch, Some(&*test), &mut callbacks)?;
    if prints || sharded {
        if let Some(folder) = arguments.text("--folder") {
            folder::write(Path::new(folder), &description, trainer.session())?;
        }
        let hash = trainer.session().parameters_hash()?;
        if prints {
            println!("parameters {hash:016x}");
        }
    }
    Ok(())
}

/// Prints what the network has learnt.
struct Look<'a> {
    start: Instant,
    writer: &'a Writer,
    description: &'a Description,
    prints: bool,
}

impl Callback for Look<'_> {
    fn on_epoch(&mut self, epoch: &Epoch, trainer: &mut Trainer) -> Result<()> {
        let (id, seconds) = (trainer.program("next")?, self.start.elapsed().as_secs_f64());
        let (loss, step) = (epoch.metric.map_or(f64::NAN, |metric| metric.value), trainer.session().steps());
        let text = self.writer.write(trainer.session(), id, &self.description.characters)?;
        if self.prints {
            println!("step {step}, {seconds:.0} s: {loss:.3} nats per character on text that it never sees");
            println!("{}\n", text.trim_matches('\n'));
        }
        Ok(())
    }
}
