//! `wgrad check`: checks whether an adapter computes correct results.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use wgrad::check::{self, Failure, Report};
use wgrad::files::Replacement;
use wgrad::{Error, Result};

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    device: crate::device::Options,
    /// Number of random networks to check after the single operations.
    #[arg(long, default_value_t = 100)]
    graphs: u64,
    /// Seed of the first network; a failure's seed with --graphs 1 reproduces its network.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Start no network after this many seconds.
    #[arg(long)]
    seconds: Option<f64>,
    /// Fuse operations in one of this many networks; fused kernels are compiled for that network alone.
    #[arg(long, value_name = "N", default_value_t = 2)]
    fuse_one_in: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Do not check; write the random networks to this file, one per line as JSON, for
    /// benches/check/against_pytorch.py.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "seconds", "adapter"])]
    export: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let Options { graphs, seed, fuse_one_in, .. } = *options;
    if let Some(path) = &options.export {
        export(path, seed, graphs)?;
        return Ok(ExitCode::SUCCESS);
    }
    let time = options.seconds.map(Duration::try_from_secs_f64).transpose();
    let time = time
        .map_err(|_| Error::setting("command line", "--seconds: expected a number of seconds".to_owned()))?;
    let device = options.device.open()?;
    let report =
        check::run(&device, &check::Options { graphs, seed, time, fuse_one_in: fuse_one_in.max(1) })?;
    if options.json {
        print_json(&report);
    } else {
        print_text(&report);
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn export(path: &Path, seed: u64, graphs: u64) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::setting("command line", format!("--export {}: {error}", path.display()))
    };
    let mut file = Replacement::create(path).map_err(failed)?;
    for seed in seed..seed + graphs {
        writeln!(file, "{}", check::export::network(seed)?).map_err(failed)?;
    }
    file.commit().map_err(failed)
}

fn print_json(report: &Report) {
    let failure = |failure: &Failure| {
        // JSON has no infinity: the error of a missing number is null.
        let error = failure.error.is_finite().then_some(failure.error);
        let Failure { seed, draw, option, what, .. } = failure;
        json!({ "seed": seed, "operation": draw, "option": option, "what": what, "error": error })
    };
    let failures: Vec<_> = report.failures.iter().map(failure).collect();
    let json = json!({
        "adapter": report.adapter,
        "operations": report.operations,
        "graphs": report.graphs,
        "failures": failures,
        "worst_error": report.worst_error,
    });
    println!("{json:#}");
}

fn print_text(report: &Report) {
    for Failure { seed, draw, option, what, .. } in &report.failures {
        let of = draw.map_or_else(|| "network".to_owned(), |draw| format!("`{draw}`"));
        println!("FAILED {of} of seed {seed}: {what}\n       with {option}");
    }
    let Report { adapter, operations, graphs, failures, worst_error } = report;
    println!(
        "{adapter}: {operations} operations and {graphs} random networks, {} differences; the largest other one is \
         {worst_error:.2} of what is allowed",
        failures.len()
    );
}
