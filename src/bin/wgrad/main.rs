//! `wgrad`: adapters, plans and benchmarks from the command line.

mod adapters;
mod bench;
mod cpu_time;
mod files;
mod fitting;
mod kernel;
mod model;
mod pack;
mod plan;
mod replay;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Plans the memory of training steps to the byte, and trains in exactly that.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists adapters: what each allows, and why wgrad would or would not choose it.
    Adapters(adapters::Options),
    /// Plans a training step without opening an adapter.
    Plan(plan::Options),
    /// Trains a model on synthetic input and measures; or measures one kernel: matmul, conv, softmax, layer-norm, attention, elementwise or adamw.
    Bench(bench::Options),
    /// Packs buffers with known lifetimes into as few bytes as possible.
    Pack(pack::PackArgs),
    /// Replays allocation traces through every pool strategy.
    Replay(replay::Options),
}

fn main() -> ExitCode {
    let start = std::time::Instant::now();
    let result = match Arguments::parse().command {
        Command::Adapters(options) => adapters::run(&options).map_err(Into::into),
        Command::Plan(options) => match plan::run(&options) {
            Ok(code) => return code,
            Err(error) => Err(error.into()),
        },
        Command::Bench(options) => bench::run(&options, start).map_err(Into::into),
        Command::Pack(options) => pack::run(options),
        Command::Replay(options) => replay::run(&options).map_err(Into::into),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
