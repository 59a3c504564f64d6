//! Trains a character-level GPT on a text, and lets it write as it learns.
//!
//! `cargo run --release --example char_gpt` learns from this crate's own source files.

mod corpus;
#[path = "../support/mod.rs"]
mod support;
mod training;
mod writer;

use std::time::Instant;

use support::Arguments;
use training::{Evaluated, Training};
use wgrad::compile::{Forward, Plan, PlanOptions, TrainStep};
use wgrad::data::{Characters, Windows};
use wgrad::exec::{Debug, ProgramId, SaveOptions, Session};
use wgrad::graph::{Params, Trace};
use wgrad::models::{Gpt, GptConfig, Sequence};
use wgrad::optim::{AdamW, Clip, Schedule};
use wgrad::{Error, Result, report};
use writer::{Description, Writer};

const HELP: &str = "\
Trains a character-level GPT on a text, and lets it write as it learns.

usage: char_gpt [--text FILE] [--steps N] [--save FILE] [--resume FILE]
       char_gpt --sample FILE [--prompt TEXT] [--length N]

  --text FILE        the text to learn from; without it, this crate's own source files
  --steps N          training steps (1000)
  --batch N          windows of text in a step (4)
  --context N        characters that the network sees (64)
  --layers N         blocks (4)
  --heads N          attention heads in a block (4)
  --width N          elements of the vector that stands for a character (128)
  --rate X           the highest learning rate (0.002)
  --save FILE        write weights and optimizer state there eight times (safetensors)
  --resume FILE      go on from such a file, to --steps in all
  --sample FILE      train nothing: let the network of such a file write
  --prompt TEXT      what it goes on from (a new line)
  --length N         characters to write (200, and 150 while it trains)
  --temperature X    0 takes the likeliest character, 1 draws as the network expects (0.7)
  --seed N           decides weights, windows and what is written (0)
  --adapter NAME     part of an adapter's name; the best one by default
  --quiet            no progress line";

/// The program of a training session that runs the forward pass over one window.
const WRITE: ProgramId = ProgramId(1);

fn main() -> std::process::ExitCode {
    support::main(run)
}

fn run() -> Result<()> {
    let Some(arguments) = Arguments::parse(HELP)? else { return Ok(()) };
    let writer = |program, length| -> Result<Writer> {
        Ok(Writer {
            program,
            prompt: arguments.text("--prompt").unwrap_or("\n").to_owned(),
            length: arguments.number("--length", length)?,
            temperature: arguments.number("--temperature", 0.7)?,
            seed: arguments.number("--seed", 0)?,
        })
    };
    match arguments.text("--sample") {
        Some(file) => sample(&arguments, file, &writer(ProgramId(0), 200)?),
        None => train(&arguments, &writer(WRITE, 150)?),
    }
}

/// Builds the network and its forward pass over one window.
fn network(description: &Description, seed: u64) -> Result<(Params, Gpt, Forward)> {
    let params = Params::new(seed);
    let gpt = Gpt::new(&params, &description.config)?;
    let GptConfig { context, vocabulary, .. } = description.config;
    let forward = Forward::trace(&params, "logits", |trace| {
        gpt.logits(&trace.ids("ids", [1, context], vocabulary as u32))
    })?;
    Ok((params, gpt, forward))
}

fn sample(arguments: &Arguments, file: &str, writer: &Writer) -> Result<()> {
    let description = Description::read(file)?;
    let (_, _, forward) = network(&description, 0)?;
    let device = arguments.device()?;
    let mut session = Session::new(&device, &forward.plan(device.limits())?)?;
    session.load(file)?;
    println!("{}", writer.write(&mut session, &description)?);
    Ok(())
}

/// Returns the characters of the text and the sizes of the command line, or both from the file to resume
/// from.
fn describe(arguments: &Arguments, text: &str) -> Result<Description> {
    if let Some(file) = arguments.text("--resume") {
        let sizes = ["--context", "--layers", "--heads", "--width"];
        if let Some(size) = sizes.into_iter().find(|size| arguments.text(size).is_some()) {
            return Err(Error::Option(format!("{size} with --resume: {file} says how large the network is")));
        }
        return Description::read(file);
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
    let (tokens, held_out) = all.split(0.9);
    let (batch, steps) = (arguments.number("--batch", 4)?, arguments.number("--steps", 1000u64)?);
    if batch == 0 || context == 0 {
        return Err(Error::Option("--batch and --context must be at least 1".to_owned()));
    }
    let windows = Windows { batch, seq: context, seed: writer.seed };

    let (params, gpt, forward) = network(&description, writer.seed)?;
    let vocabulary = characters.len() as u32;
    let loss = |trace: &Trace| {
        let x = trace.ids("x", [batch, context], vocabulary);
        gpt.loss(&x, &trace.labels("y", [batch * context], vocabulary))
    };
    let optimizer = AdamW { lr: arguments.number("--rate", 2e-3)?, weight_decay: 0.1, ..AdamW::default() };
    let options =
        PlanOptions { optimizer: optimizer.into(), clip: Clip::Norm(1.0), ..PlanOptions::default() };
    let device = arguments.device()?;
    println!("{device}");
    println!(
        "{} characters, {} different ones; {} parameters\n",
        all.ids().len(),
        characters.len(),
        params.count()
    );
    let step = TrainStep::trace(&params, loss)?.plan(&options, device.limits())?;
    let evaluate = Forward::trace(&params, "loss", loss)?.plan(device.limits())?;
    println!("a step of {batch} windows of {context}; {}", report::Estimate::of(&step));
    let plans: [&Plan; 3] = [&step, &forward.plan(device.limits())?, &evaluate];
    let opened = Session::with_plans(&device, &plans, Debug::default());
    let mut session = support::noted(opened, |failure| failure.with_plan(&step).with_device(&device))?;
    if let Some(file) = arguments.text("--resume") {
        session.load(file)?;
    }
    let done = session.steps();
    if done >= steps {
        return Err(Error::Option(format!("--steps {steps}: {done} steps are made already; ask for more")));
    }
    session.set_schedule(Schedule::Cosine { warmup: steps / 20, total: steps, floor: 0.1 });

    let mut training = Training { session, batch, steps, done };
    let mut progress = support::progress(arguments);
    let ran = training.run(&tokens, &held_out, windows, &mut progress, |epoch, session| {
        let Evaluated { step, loss } = epoch;
        let seconds = start.elapsed().as_secs_f64();
        println!("step {step}, {seconds:.0} s: {loss:.3} nats per character on text that it never sees");
        println!("{}\n", writer.write(session, &description)?.trim_matches('\n'));
        match arguments.text("--save") {
            Some(file) => {
                session.save_with(file, &SaveOptions { optimizer_state: true, notes: description.notes() })
            }
            None => Ok(()),
        }
    });
    support::noted(ran, |failure| failure.with_session(&training.session))
}
