//! `wgrad`: adapters, plans and benchmarks from the command line.

#[macro_use]
mod print;

mod adapters;
mod bench;
mod check;
mod cpu_time;
mod device;
mod export;
mod failures;
mod files;
mod finetune;
mod fitting;
mod generate;
mod kernel;
mod model;
mod ops;
mod pack;
mod plan;
mod ranks;
mod replay;
mod run;
mod summary;
mod text;

use std::io::Write as _;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use wgrad::progress::watch;
use wgrad::train::Meter;

/// Plans the memory of training steps to the byte, and trains in exactly that.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Do not show a progress line.
    #[arg(long, global = true)]
    quiet: bool,
    /// Show what was decided on the way, such as whether cooperative matrices are used; twice, for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Lists adapters: the limits of each, and why wgrad would or would not choose it.
    Adapters(adapters::Options),
    /// Lists operations, layers, optimizers and schedules with their names in PyTorch and ONNX.
    Ops(ops::Options),
    /// Plans a training step without opening an adapter.
    Plan(plan::Options),
    /// Measures the training of a model on synthetic input, or one kernel, such as matmul or conv-dw.
    #[command(after_help = format!("Kernels: {}.", kernel::Kind::names().join(", ")))]
    Bench(bench::Options),
    /// Trains a language model, or adapters over it, on your documents, in the memory that you have.
    Finetune(Box<finetune::Options>),
    /// Lets a language model write text.
    Generate(generate::Options),
    /// Computes the outputs of a network, of a model or of an ONNX file.
    Run(run::Options),
    /// Writes a trained network as an ONNX file, for inference.
    Export(export::Options),
    /// Checks an adapter: compares every operation and random networks, with random options, with an f64
    /// reference.
    Check(check::Options),
    /// Packs buffers with known lifetimes into as few bytes as possible.
    Pack(pack::PackArgs),
    /// Replays allocation traces through every pool strategy.
    Replay(replay::Options),
    /// Prints tables of what run.sh of a bundle of scripts/gpu_day.sh measured.
    Summary(summary::Options),
}

/// Returns which messages are shown; those of wgpu on every driver's quirks are only by RUST_LOG.
fn logged(verbose: u8) -> String {
    let own = ["warn", "info", "debug"][usize::from(verbose.min(2))];
    format!("{own},wgpu=error,wgpu_core=error,wgpu_hal=error,naga=error")
}

fn main() -> ExitCode {
    let start = std::time::Instant::now();
    let matches = Arguments::command().mut_subcommand("finetune", finetune::described).get_matches();
    let given = given(&matches);
    let Arguments { command, quiet, verbose } =
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // RUST_LOG selects others.
    let filter = env_logger::Env::default().default_filter_or(logged(verbose));
    env_logger::Builder::from_env(filter)
        .format(|out, record| {
            let level = match record.level() {
                log::Level::Warn => "warning".to_owned(),
                other => other.as_str().to_lowercase(),
            };
            writeln!(out, "{level}: {}", record.args())
        })
        .init();
    let ended = watch(Meter::new(quiet).drawing(), || run(command, &given, quiet, start));
    let ended = print::end().map_err(Into::into).and(ended);
    ended.unwrap_or_else(|error| {
        // In one write, so that the lines of several ranks do not mix.
        let _ = std::io::stderr().write_all(format!("error: {error}\n").as_bytes());
        ExitCode::FAILURE
    })
}

/// Returns the ids of the options that the command line sets.
fn given(matches: &ArgMatches) -> Vec<String> {
    let Some((_, options)) = matches.subcommand() else { return Vec::new() };
    let set = |id: &&clap::Id| options.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    options.ids().filter(set).map(|id| id.to_string()).collect()
}

fn run(
    command: Command,
    given: &[String],
    quiet: bool,
    start: std::time::Instant,
) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match command {
        Command::Adapters(options) => adapters::run(&options)?,
        Command::Ops(options) => ops::run(&options),
        Command::Plan(options) => return Ok(plan::run(&options)?),
        Command::Bench(options) => bench::run(&options, given, start)?,
        Command::Finetune(options) => return Ok(finetune::run(*options, quiet)?),
        Command::Generate(options) => generate::run(&options, quiet)?,
        Command::Run(options) => run::run(&options)?,
        Command::Export(options) => export::run(&options)?,
        Command::Check(options) => return Ok(check::run(&options)?),
        Command::Pack(options) => pack::run(options)?,
        Command::Replay(options) => replay::run(&options)?,
        Command::Summary(options) => summary::run(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Converts the library's JSON to a `serde_json` value.
fn data(json: &wgrad::json::Json) -> wgrad::Result<serde_json::Value> {
    serde_json::from_str(&json.to_string()).map_err(|e| wgrad::Error::Internal(e.to_string()))
}
