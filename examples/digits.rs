//! Trains a small network on handwritten digits: 1,797 real images of 8×8 pixels (UCI, see
//! `examples/data/README.md`).
//!
//! `cargo run --release --example digits` reaches 97 % and more on the fifth of the images that it never
//! trains on.

mod support;

use std::time::Instant;

use support::Arguments;
use support::tasks::{self, Prepared};
use wgrad::compile::PlanOptions;
use wgrad::data::Dataset;
use wgrad::dtype::Precision;
use wgrad::models::Model;
use wgrad::optim::Optimizer;
use wgrad::train::{Metrics, Trainer};
use wgrad::{Error, Result};

const HELP: &str = "\
Trains a 64-128-64-10 network on the UCI handwritten digits.

usage: digits [--epochs N] [--batch N] [--precision P] [--optimizer NAME] [--lr RATE] [--adapter NAME]
              [--save FILE] [--resume FILE] [--tensorboard DIR] [--quiet]

  --epochs N         passes over the training images (30)
  --batch N          images per step (32)
  --precision P      f32, f16, bf16, int8 or int4: how activations wait for the backward pass (f32)
  --optimizer NAME   with its default settings, but for the rate (adamw)
  --lr RATE          learning rate (0.004)
  --adapter NAME     part of an adapter's name; the best one by default
  --save FILE        write parameters and optimizer state there after each epoch, and when Ctrl-C stops the run
                     (safetensors)
  --resume FILE      continue from a file that --save wrote
  --tensorboard DIR  write loss, accuracy, speed and bytes of each step there, for `tensorboard --logdir DIR`
  --quiet            no progress line";

fn main() -> std::process::ExitCode {
    support::main(run)
}

fn run() -> Result<()> {
    let Some(arguments) = Arguments::parse(HELP)? else { return Ok(()) };
    let (epochs, batch) = (arguments.number("--epochs", 30u64)?, arguments.number("--batch", 32)?);
    let own = tasks::digits_optimizer();
    let optimizer = arguments.text("--optimizer").map_or(Ok(own), Optimizer::named)?;
    let optimizer = optimizer.with_learning_rate(arguments.number("--lr", own.learning_rate())?);
    let name = arguments.text("--precision").unwrap_or("f32");
    let known = Precision::ALL.map(Precision::name).join(", ");
    let precision = Precision::named(name)
        .ok_or_else(|| Error::setting("command line", format!("--precision {name}: there are {known}")))?;
    let start = Instant::now();
    let device = arguments.device(0)?;
    println!("{device}");
    let data = support::digits()?.split(0.8, 0);
    let (train, test) = &data;
    println!("{} images to train on, {} to test on\n", train.len(), test.len());

    let model = Model::named("digits", 0)?;
    let plan = PlanOptions { optimizer, precision, ..PlanOptions::default() };
    let Prepared { task, loader, options, test } = tasks::digits(&model, data, (epochs, batch), plan)?;
    let steps = loader.batches() as u64;
    let (mut progress, mut monitor) = (support::progress(&arguments), support::monitor());
    let mut trainer = Trainer::watched(&device, task, loader, &options, &mut [&mut monitor])?;
    let mut metrics = arguments.text("--tensorboard").map(Metrics::tensorboard).transpose()?;
    let mut checkpoint = support::checkpoint(&arguments);
    let left = support::resume(&arguments, &mut trainer, epochs, steps)?;
    let mut callbacks: Vec<&mut dyn wgrad::train::Callback> = vec![&mut progress, &mut monitor];
    callbacks.extend(checkpoint.as_mut().map(|c| c as &mut dyn wgrad::train::Callback));
    callbacks.extend(metrics.as_mut().map(|m| m as &mut dyn wgrad::train::Callback));
    support::stop_on_signals(&trainer);
    let end = trainer.fit(left, Some(&*test), &mut callbacks)?;
    support::conclude(&mut trainer, &end, batch, start)
}
