//! `wgrad replay`: replays allocation traces with every allocation strategy.

use std::path::{Path, PathBuf};

use wgrad::json::Json;
use wgrad::memory::picture;
use wgrad::memory::replay::{Outcome, Time};
use wgrad::memory::trace::Trace;
use wgrad::report::{TraceFile, contenders_named};
use wgrad::{Bytes, Error, Result, files, progress};

#[derive(clap::Args)]
pub struct Options {
    /// Lifetimes (CSV `id,lower,upper,size`), event logs of this library, or PyTorch memory snapshots
    /// (pickle).
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Names of strategies, separated by commas, or all. The offline planner knows the whole trace in advance
    /// and serves as the reference for the others.
    #[arg(long, default_value = "all")]
    strategy: String,
    /// Maximum bytes that a strategy may reserve; unlimited by default.
    #[arg(long)]
    capacity: Option<u64>,
    /// Index of the device to replay, for snapshots of several devices; the first by default.
    #[arg(long)]
    device: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw address over time into this SVG file, one panel per strategy; allows only one trace.
    #[arg(long)]
    svg: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let chosen = contenders_named(&options.strategy)?;
    if options.capacity == Some(0) {
        return Err(Error::setting("command line", "--capacity 0: it must be at least 1 byte".to_owned()));
    }
    if options.svg.is_some() && options.files.len() > 1 {
        return Err(Error::setting(
            "command line",
            format!("--svg draws one trace, {} files were given", options.files.len()),
        ));
    }
    let mut reports = Vec::new();
    for path in &options.files {
        let file = TraceFile::read(path, options.device)?;
        let trace = &file.trace;
        let task = progress::task("replay", chosen.len() as u64);
        let outcomes: Vec<Outcome> = (1..)
            .zip(&chosen)
            .map(|(done, &contender)| {
                let outcome = file.replay(contender, options.capacity);
                task.done(done);
                outcome
            })
            .collect::<Result<_, _>>()?;
        drop(task);
        if options.json {
            reports.push(file.json(&path.display().to_string(), &outcomes));
        } else {
            print_table(path, trace, file.reserved, &outcomes);
        }
        if let Some(path) = &options.svg {
            files::write(path, picture::svg(trace, &chosen)?.as_bytes()).map_err(|error| Error::Data {
                what: path.display().to_string(),
                message: error.to_string(),
            })?;
        }
    }
    if options.json {
        println!("{}", Json::List(reports));
    }
    Ok(())
}

fn print_table(path: &Path, trace: &Trace, reported: Option<u64>, outcomes: &[Outcome]) {
    println!("{}: {} blocks, lower bound {}", path.display(), trace.blocks.len(), Bytes(trace.lower_bound()));
    if let Some(bytes) = reported {
        println!("  PyTorch itself had reserved {} at the end", Bytes(bytes));
    }
    println!(
        "  {:<18} {:>9} {:>15} {:>6} {:>10} {:>7} {:>7} {:>8} {:>8}",
        "strategy", "ratio", "reserved B", "frag", "padding", "failed", "pages", "p50 ns", "p99 ns"
    );
    let dash = || "–".to_owned();
    for o in outcomes {
        let nanoseconds =
            |pick: fn(Time) -> f64| o.ns_per_op.map_or_else(dash, |t| format!("{:.0}", pick(t)));
        println!(
            "  {:<18} {:>9.4} {:>15} {:>5.1}% {:>10} {:>7} {:>7} {:>8} {:>8}",
            o.name,
            o.ratio,
            o.peak_reserved,
            o.fragmentation * 100.0,
            Bytes(o.padding),
            o.failed.map_or_else(dash, |failed| failed.to_string()),
            o.native_allocations,
            nanoseconds(|time| time.p50),
            nanoseconds(|time| time.p99)
        );
    }
}
