//! Trains a small network on handwritten digits: 1,797 real images of 8×8 pixels (UCI, see `examples/data/README.md`).
//!
//! `cargo run --release --example digits` reaches 97 % and more on the fifth of the images that it never trains on.

use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use wgrad::data::{Dataset, Loader, Table};
use wgrad::device::Device;
use wgrad::dtype::Precision;
use wgrad::models::Model;
use wgrad::optim::{Optimizer, Schedule};
use wgrad::plan::PlanOptions;
use wgrad::train::{Checkpoint, ProgressLine, TrainOptions, Trainer};
use wgrad::{Bytes, Error, Result, report};

const HELP: &str = "\
Trains a 64-128-64-10 network on the UCI handwritten digits.

usage: digits [--epochs N] [--batch N] [--precision P] [--optimizer NAME] [--lr RATE] [--adapter NAME] [--save FILE]

  --epochs N      passes over the training images (30)
  --batch N       images per step (32)
  --precision P   f32, f16 or bf16: how activations wait for the backward pass (f32)
  --optimizer NAME  with its default settings, but for the rate (adamw)
  --lr RATE       learning rate (0.004)
  --adapter NAME  part of an adapter's name; the best one by default
  --save FILE     write parameters and optimizer state there after each epoch (safetensors)";

const DATA: &[u8] = include_bytes!("data/digits.csv.gz");

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(arguments) = Arguments::parse()? else {
        println!("{HELP}");
        return Ok(());
    };
    let start = Instant::now();
    let device = match &arguments.adapter {
        Some(name) => Device::by_name(name)?,
        None => Device::new()?,
    };
    println!("{device}");
    let (train, test) = digits()?.split(0.8, 0);
    println!("{} images to train on, {} to test on\n", train.len(), test.len());

    let model = Model::named("digits", 0)?;
    let loader = Loader::new(Arc::new(train), arguments.batch)?.shuffled(0);
    let total = arguments.epochs * loader.batches() as u64;
    let (optimizer, precision) = (arguments.optimizer, arguments.precision);
    let options = TrainOptions {
        plan: PlanOptions { optimizer, precision, ..PlanOptions::default() },
        schedule: Schedule::Cosine { warmup: total / 20, total, floor: 0.01 },
    };
    let mut trainer = Trainer::new(&device, &model, loader, &options)?;
    let mut progress = ProgressLine::default();
    let mut checkpoint = arguments.save.map(|path| Checkpoint { path: path.into(), every: 1 });
    let mut callbacks: Vec<&mut dyn wgrad::train::Callback> = vec![&mut progress];
    callbacks.extend(checkpoint.as_mut().map(|c| c as &mut dyn wgrad::train::Callback));
    let end = trainer.fit(arguments.epochs, Some(&test), &mut callbacks)?;

    let accuracy = end.accuracy.unwrap_or_default();
    println!("\ntest accuracy {:.2} % after {:.1} s\n", accuracy * 100.0, start.elapsed().as_secs_f64());
    let created = trainer.session().device_bytes();
    let plan = trainer.session().plan(wgrad::exec::ProgramId(0))?;
    print!("a step of {} images; {}", arguments.batch, report::Estimate::of(plan));
    println!(
        "\nthe session, with its evaluation and smaller last batch, created {} on the device",
        Bytes(created)
    );
    Ok(())
}

/// The data set, with pixels in [0, 1].
fn digits() -> Result<Table> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(DATA)
        .read_to_string(&mut text)
        .map_err(|e| Error::Data { what: "digits.csv.gz".to_owned(), message: e.to_string() })?;
    Ok(Table::from_csv("digits.csv.gz", &text, 64, 10)?.scaled(1.0 / 16.0))
}

struct Arguments {
    epochs: u64,
    batch: usize,
    precision: Precision,
    optimizer: Optimizer,
    adapter: Option<String>,
    save: Option<String>,
}

impl Arguments {
    /// `None` if help was asked for.
    fn parse() -> Result<Option<Self>> {
        let mut parsed = Self {
            epochs: 30,
            batch: 32,
            precision: Precision::F32,
            optimizer: Optimizer::named("adamw")?,
            adapter: None,
            save: None,
        };
        let mut rate = 4e-3;
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                return Ok(None);
            }
            let value =
                words.next().ok_or_else(|| Error::Option(format!("{word} needs a value\n\n{HELP}")))?;
            let number = || value.parse().map_err(|_| Error::Option(format!("{word} {value}: not a number")));
            match word.as_str() {
                "--epochs" => parsed.epochs = number()?,
                "--batch" => parsed.batch = number()? as usize,
                "--precision" => {
                    parsed.precision = Precision::named(&value)
                        .ok_or_else(|| Error::Option(format!("--precision {value}\n\n{HELP}")))?;
                }
                "--optimizer" => parsed.optimizer = Optimizer::named(&value)?,
                "--lr" => {
                    rate = value.parse().map_err(|_| Error::Option(format!("--lr {value}: not a number")))?;
                }
                "--adapter" => parsed.adapter = Some(value),
                "--save" => parsed.save = Some(value),
                _ => return Err(Error::Option(format!("there is no option {word}\n\n{HELP}"))),
            }
        }
        parsed.optimizer = parsed.optimizer.with_learning_rate(rate);
        Ok(Some(parsed))
    }
}
