//! Trains a residual network on a folder of images with one folder inside it for each class.
//!
//! `cargo run --release --features images --example image_folder -- --data FOLDER`

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use support::Arguments;
use wgrad::compile::PlanOptions;
use wgrad::data::{Augment, Dataset, ImageFolder, ImageOptions, Loader, RandomCrop, Subset};
use wgrad::graph::{Params, Tensor};
use wgrad::models::ResNet;
use wgrad::nn::Module;
use wgrad::optim::{AdamW, Schedule};
use wgrad::train::{Best, Callback, Checkpoint, EarlyStopping, Task, TrainOptions, Trainer};
use wgrad::{Error, Result};

const HELP: &str = "\
Trains a residual network on PNG and JPEG images in one folder for each class.

usage: image_folder --data DIR [--test DIR] [--size N] [--epochs N] [--batch N] [--save FILE] [--adapter NAME] [--quiet]

  --data DIR      images to train on, DIR/CLASS/NAME.png
  --test DIR      images to test on, with the same classes; otherwise a fifth of those in --data
  --size N        height and width in pixels (64)
  --epochs N      passes over the training images (20)
  --batch N       images per step (32)
  --save FILE     where the run is saved after each epoch (NAME.best.safetensors: its best); if the file is there, the run
                  continues from it
  --adapter NAME  part of an adapter's name; the best one by default
  --quiet         no progress line";

fn main() -> std::process::ExitCode {
    support::main(run)
}

fn run() -> Result<()> {
    let Some(arguments) = Arguments::parse(HELP)? else { return Ok(()) };
    let Some(directory) = arguments.text("--data") else {
        return Err(Error::setting("command line", format!("--data is needed\n\n{HELP}")));
    };
    let (epochs, batch) = (arguments.number("--epochs", 20u64)?, arguments.number("--batch", 32)?);
    let start = Instant::now();
    // Only training batches are varied; evaluations see the images as they are.
    let augment = Augment { seed: 0, flip: true, crop: RandomCrop::Resized(0.3) };
    let options =
        ImageOptions { augment: Some(augment), ..ImageOptions::square(arguments.number("--size", 64)?) };
    let images = ImageFolder::open(directory, options)?;
    let ([c, h, w], classes) = (images.shape(), images.classes().to_vec());
    let len = images.sample_len();
    let (train, test): (Arc<dyn Dataset>, Arc<dyn Dataset>) = match arguments.text("--test") {
        Some(directory) => {
            let test = ImageFolder::open_with(directory, &classes, options)?;
            (Arc::new(images), Arc::new(test))
        }
        None => {
            let (train, test) = Subset::split(Arc::new(images), 0.8, 0);
            (Arc::new(train), Arc::new(test))
        }
    };

    let params = Params::new(0);
    let resnet = ResNet::small(&params, c, &[(16, 1), (32, 1), (64, 1)], classes.len());
    let network = |x: &Tensor| resnet.forward(&x.reshape([x.dim(0), c, h, w]));
    let task = Task::classifier(&params, len, classes.len(), network);
    let device = arguments.device(0)?;
    println!("{device}");
    println!("{} images of {} to train on, {} to test on\n", train.len(), classes.join(", "), test.len());

    let loader = Loader::new(train, batch)?.shuffled(0);
    let steps = loader.batches() as u64;
    let total = epochs * steps;
    let optimizer = AdamW { lr: 2e-3, weight_decay: 0.05, ..AdamW::default() }.into();
    let options = TrainOptions {
        plan: PlanOptions { optimizer, ..PlanOptions::default() },
        schedule: Schedule::Cosine { warmup: total / 10, total, floor: 0.01 },
        ..TrainOptions::default()
    };
    let (mut progress, mut monitor) = (support::progress(&arguments), support::monitor());
    let mut trainer = Trainer::watched(&device, task, loader, &options, &mut [&mut monitor])?;
    support::stop_on_signals(&trainer);
    let mut stopping = EarlyStopping::default();
    let mut callbacks: Vec<&mut dyn Callback> = vec![&mut progress, &mut monitor, &mut stopping];
    let mut checkpoint;
    if let Some(path) = arguments.text("--save") {
        if Path::new(path).exists() {
            trainer.load(path)?;
            println!("continues from step {} of {total}", trainer.session().steps());
        }
        checkpoint = Checkpoint { path: path.into(), best: Some(Best::Highest), ..Checkpoint::default() };
        callbacks.push(&mut checkpoint);
    }
    let done = trainer.session().steps() / steps;
    if done >= epochs {
        return Err(Error::setting("--epochs", format!("{done} epochs are done: --epochs must be higher")));
    }
    let end = trainer.fit(epochs - done, Some(&*test), &mut callbacks)?;
    drop(callbacks);
    support::conclude(&mut trainer, &end, batch, start)
}
