//! `wgrad`: adapters, plans and benchmarks from the command line.

mod adapters;
mod bench;
mod model;
mod plan;

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
    /// Trains a model on synthetic input and measures.
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let start = std::time::Instant::now();
    let result = match Arguments::parse().command {
        Command::Adapters(options) => adapters::run(&options),
        Command::Plan(options) => plan::run(&options),
        Command::Bench(options) => bench::run(&options, start),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
