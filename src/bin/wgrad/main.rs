//! `wgrad`: adapters, plans and benchmarks from the command line.

#[macro_use]
mod print;

mod adapters;
mod bench;
mod check;
mod cpu_time;
mod device;
mod failures;
mod files;
mod fitting;
mod kernel;
mod model;
mod pack;
mod plan;
mod replay;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use wgrad::progress::watch;
use wgrad::train::Meter;

/// Plans the memory of training steps to the byte, and trains in exactly that.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// No progress line.
    #[arg(long, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Lists adapters: what each allows, and why wgrad would or would not choose it.
    Adapters(adapters::Options),
    /// Plans a training step without opening an adapter.
    Plan(plan::Options),
    /// Trains a model on synthetic input and measures; or measures one kernel: matmul, conv, softmax, layer-norm, attention, elementwise or adamw.
    Bench(bench::Options),
    /// Checks an adapter: every operation and random networks, with random options, against arithmetic in f64.
    Check(check::Options),
    /// Packs buffers with known lifetimes into as few bytes as possible.
    Pack(pack::PackArgs),
    /// Replays allocation traces through every pool strategy.
    Replay(replay::Options),
}

fn main() -> ExitCode {
    let start = std::time::Instant::now();
    let Arguments { command, quiet } = Arguments::parse();
    let ended = watch(Meter::new(quiet).drawing(), || run(command, start));
    let ended = print::end().map_err(Into::into).and(ended);
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run(command: Command, start: std::time::Instant) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match command {
        Command::Adapters(options) => adapters::run(&options)?,
        Command::Plan(options) => return Ok(plan::run(&options)?),
        Command::Bench(options) => bench::run(&options, start)?,
        Command::Check(options) => return Ok(check::run(&options)?),
        Command::Pack(options) => pack::run(options)?,
        Command::Replay(options) => replay::run(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The library's JSON as a part of the program's.
fn data(json: &wgrad::json::Json) -> wgrad::Result<serde_json::Value> {
    serde_json::from_str(&json.to_string()).map_err(|e| wgrad::Error::Internal(e.to_string()))
}
