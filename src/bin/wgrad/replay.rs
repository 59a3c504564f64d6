//! `wgrad replay`: replays allocation traces with every allocation strategy.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wgrad::memory::picture;
use wgrad::memory::replay::{Contender, Outcome, Time, contenders, replay};
use wgrad::memory::snapshot::Snapshot;
use wgrad::memory::trace::Trace;
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
    let chosen = choose(&options.strategy)?;
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
        let (trace, reported) = read(path, options.device)?;
        let task = progress::task("replay", chosen.len() as u64);
        let outcomes: Vec<Outcome> = (1..)
            .zip(&chosen)
            .map(|(done, &contender)| {
                let outcome = replay(&trace, contender, options.capacity);
                task.done(done);
                outcome
            })
            .collect::<Result<_, _>>()?;
        drop(task);
        if options.json {
            reports.push(to_json(path, &trace, reported, &outcomes));
        } else {
            print_table(path, &trace, reported, &outcomes);
        }
        if let Some(file) = &options.svg {
            files::write(file, picture::svg(&trace, &chosen)?.as_bytes())
                .map_err(|error| data(file, error))?;
        }
    }
    if options.json {
        println!("{}", Value::Array(reports));
    }
    Ok(())
}

fn choose(names: &str) -> Result<Vec<Contender>> {
    let all = contenders();
    if names == "all" {
        return Ok(all);
    }
    let find = |name: &str| {
        let known =
            || all.iter().map(|contender| contender.name.to_owned()).chain(["all".to_owned()]).collect();
        let found = all.iter().find(|contender| contender.name == name).copied();
        found.ok_or_else(|| Error::Unknown { kind: "strategy", name: name.to_owned(), known: known() })
    };
    names.split(',').map(find).collect()
}

/// Returns the trace in a file and, for a snapshot, the bytes that PyTorch had reserved at its end.
fn read(path: &Path, device: Option<usize>) -> Result<(Trace, Option<u64>)> {
    let bytes = std::fs::read(path).map_err(|error| data(path, error))?;
    // Binary pickles begin with the byte 0x80, which no UTF-8 text begins with.
    if bytes.first() == Some(&0x80) {
        let device = device.unwrap_or(0);
        let snapshot = Snapshot::read(&bytes).map_err(|error| data(path, error))?;
        let trace = snapshot.trace(device).map_err(|error| data(path, error))?;
        if trace.steps.is_empty() {
            let devices = snapshot.device_traces.len();
            return Err(data(
                path,
                format!("device {device} of {devices} has no blocks and no events; see --device"),
            ));
        }
        return Ok((trace, Some(snapshot.reserved(device))));
    }
    if let Some(device) = device {
        return Err(data(
            path,
            format!("--device {device} is for snapshots, which name devices; leave it out"),
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| data(path, format!("neither a binary pickle nor text: {}", error.utf8_error())))?;
    Ok((Trace::parse(&text).map_err(|error| data(path, error))?, None))
}

fn data(path: &Path, message: impl ToString) -> Error {
    Error::Data { what: path.display().to_string(), message: message.to_string() }
}

fn to_json(path: &Path, trace: &Trace, reported: Option<u64>, outcomes: &[Outcome]) -> Value {
    let strategies: Vec<Value> = outcomes
        .iter()
        .map(|o| {
            json!({
                "strategy": o.name,
                "peak_live": o.peak_live,
                "peak_reserved": o.peak_reserved,
                "ratio": o.ratio,
                "fragmentation": o.fragmentation,
                "padding": o.padding,
                "failed": o.failed,
                "native_allocations": o.native_allocations,
                "ns_per_op": o.ns_per_op.map(|time| json!({ "p50": time.p50, "p99": time.p99 })),
            })
        })
        .collect();
    json!({
        "file": path.display().to_string(),
        "blocks": trace.blocks.len(),
        "lower_bound_bytes": trace.lower_bound(),
        "reported_reserved_bytes": reported,
        "strategies": strategies,
    })
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
