//! What the examples share: the command line, the digits, and the report at the end.
#![allow(dead_code, reason = "each example uses a part")]

pub mod tasks;

use std::io::Read;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "mpi")]
use std::time::Duration;
use std::time::Instant;

use wgrad::data::Table;
use wgrad::device::{Device, DeviceOptions, Select};
#[cfg(feature = "mpi")]
use wgrad::exec::MpiTransport;
use wgrad::exec::{ProgramId, Transport};
use wgrad::progress::watch;
use wgrad::train::{Checkpoint, Epoch, Meter, Monitor, MonitorOptions, ProgressLine, Trainer};
use wgrad::{Bytes, Error, Result, report};

const DIGITS: &[u8] = include_bytes!("../data/digits.csv.gz");

/// Runs an example; an error is printed and becomes the exit status.
pub fn main(run: impl FnOnce() -> Result<()>) -> ExitCode {
    let quiet = std::env::args().any(|word| word == "--quiet");
    match watch(Meter::new(quiet).drawing(), run) {
        Ok(()) => ExitCode::SUCCESS,
        // As a shell reports a program that SIGINT ended.
        Err(error @ Error::Stopped { .. }) => {
            eprintln!("{error}");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Options of the command line.
pub struct Arguments {
    pairs: Vec<(String, String)>,
    flags: Vec<String>,
}

/// Options without a value.
const FLAGS: [&str; 1] = ["--quiet"];

impl Arguments {
    /// Reads the command line. Options are the words of `help` that begin with two dashes; all but [`FLAGS`]
    /// take a value. Returns `None` after `--help`, which prints the text.
    pub fn parse(help: &str) -> Result<Option<Self>> {
        let (mut pairs, mut flags) = (Vec::new(), Vec::new());
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                println!("{help}");
                return Ok(None);
            }
            let known = help.split([' ', '\n', '[', ']']).any(|other| other == word);
            if !word.starts_with("--") || !known {
                return Err(Error::setting("command line", format!("there is no option {word}\n\n{help}")));
            }
            if FLAGS.contains(&word.as_str()) {
                flags.push(word);
                continue;
            }
            let value = words
                .next()
                .ok_or_else(|| Error::setting("command line", format!("{word} needs a value\n\n{help}")))?;
            pairs.push((word, value));
        }
        Ok(Some(Self { pairs, flags }))
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }

    /// Returns the value of an option if it is given, the last one if there are several.
    pub fn text(&self, option: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(name, _)| name == option).map(|(_, value)| value.as_str())
    }

    /// Returns the value of an option as a number.
    pub fn number<T: FromStr>(&self, option: &str, default: T) -> Result<T> {
        let Some(value) = self.text(option) else { return Ok(default) };
        value.parse().map_err(|_| {
            Error::setting("command line", format!("{option} {value}: not a number that can be used"))
        })
    }

    /// Opens the adapter of `--adapter`, or the best one; of several like it, the one of this number.
    pub fn device(&self, number: u32) -> Result<Device> {
        let select = self.text("--adapter").map_or(Select::Best, Select::from);
        Device::open(&DeviceOptions { select, number: number as usize, ..DeviceOptions::default() })
    }
}

/// A rank of a run on several devices.
pub struct Rank {
    pub transport: Box<dyn Transport>,
    /// Its number among those of its machine.
    pub local: u32,
}

/// Returns the rank of this process if `mpirun` started several, with the feature `mpi`.
#[cfg(feature = "mpi")]
pub fn rank() -> Result<Option<Rank>> {
    let transport = MpiTransport::launched(Duration::from_secs(300))?;
    let rank = |transport: MpiTransport| {
        let local = transport.local_rank();
        Rank { transport: Box::new(transport), local }
    };
    Ok(transport.map(rank))
}

#[cfg(not(feature = "mpi"))]
pub fn rank() -> Result<Option<Rank>> {
    Ok(None)
}

/// Returns the handwritten digits, with pixels in [0, 1].
pub fn digits() -> Result<Table> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(DIGITS)
        .read_to_string(&mut text)
        .map_err(|e| Error::Data { what: "digits.csv.gz".to_owned(), message: e.to_string() })?;
    tasks::read_digits(&text)
}

/// Returns a monitor that warns through `log` and on standard error. A run that fails, or cannot start, is
/// reported in a file in the folder for temporary files.
pub fn monitor() -> Monitor<'static> {
    let options = MonitorOptions { failures: Some(std::env::temp_dir()), ..MonitorOptions::default() };
    Monitor::new(options, |alert| eprintln!("warning: {alert}"))
}

/// Stops the run after its current step on SIGINT (Ctrl-C) or SIGTERM; a second signal ends the process.
pub fn stop_on_signals(trainer: &Trainer) {
    let (stop, asked) = (trainer.stop(), AtomicBool::new(false));
    let handler = move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        stop.request();
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        log::warn!("Ctrl-C will end the run without saving: {error}");
    }
}

/// Returns the progress line of a run, which is silent with `--quiet`.
pub fn progress(arguments: &Arguments) -> ProgressLine {
    if arguments.has("--quiet") { ProgressLine::quiet() } else { ProgressLine::default() }
}

/// Returns what keeps the run in the file of `--save`, if it is given.
pub fn checkpoint(arguments: &Arguments) -> Option<Checkpoint> {
    arguments.text("--save").map(|path| Checkpoint { path: path.into(), ..Checkpoint::default() })
}

/// Goes on from the file of `--resume`, if it is given. Returns the epochs that are left, each of `steps` steps.
pub fn resume(arguments: &Arguments, trainer: &mut Trainer, epochs: u64, steps: u64) -> Result<u64> {
    if let Some(file) = arguments.text("--resume") {
        trainer.load(file)?;
    }
    match epochs.saturating_sub(trainer.session().steps() / steps) {
        0 => {
            let message = format!("--epochs {epochs}: they are made already; ask for more");
            Err(Error::setting("--epochs", message))
        }
        left => Ok(left),
    }
}

/// Prints the accuracy after the last epoch and the memory of the training session.
pub fn conclude(trainer: &mut Trainer, end: &Epoch, batch: usize, start: Instant) -> Result<()> {
    let accuracy = end.metric.map_or(0.0, |metric| metric.value);
    println!("\ntest accuracy {:.2} % after {:.1} s\n", accuracy * 100.0, start.elapsed().as_secs_f64());
    let created = trainer.session().device_bytes();
    let plan = trainer.session().plan(ProgramId(0))?;
    print!("a step of {batch} images; {}", report::Estimate::of(plan));
    println!(
        "\nthe session, with its evaluation and smaller last batch, created {} on the device",
        Bytes(created)
    );
    Ok(())
}
