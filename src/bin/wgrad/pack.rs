//! `wgrad pack`: computes offsets for any list of buffers with lifetimes, for use by other compilers.

use std::error::Error;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use wgrad::files::{self, Replacement};
use wgrad::memory::planner::{
    Effort, Options, PackError, Packing, Problem, read_problem, solve, write_solution,
};
use wgrad::report::packing_json;
use wgrad::{Bytes, progress};

/// Pack buffers with known lifetimes into as few bytes as possible.
#[derive(clap::Args, Debug)]
pub struct PackArgs {
    /// Problem in CSV: id,lower,upper,size and optionally alignment, arena, offset; alive on [lower, upper)
    file: PathBuf,
    /// Target size in bytes: stop as soon as it is reached, exit with 1 if it is not
    #[arg(long, value_name = "BYTES")]
    capacity: Option<u64>,
    /// How much work is spent; the result depends only on this and the problem
    #[arg(long, value_enum, default_value_t = EffortName::Balanced)]
    effort: EffortName,
    /// Return the best packing found after this many seconds
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<f64>,
    /// Write the problem with a column of offsets to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EffortName {
    Fast,
    Balanced,
    Exact,
}

impl From<EffortName> for Effort {
    fn from(name: EffortName) -> Self {
        match name {
            EffortName::Fast => Effort::Fast,
            EffortName::Balanced => Effort::Balanced,
            EffortName::Exact => Effort::Exact,
        }
    }
}

/// Reads the problem, packs it, writes the solution and prints a report.
///
/// # Errors
/// A file that cannot be read or written, an invalid problem, or a capacity that was not reached.
pub fn run(args: PackArgs) -> Result<(), Box<dyn Error>> {
    let name = args.file.display();
    if let Some(path) = &args.output {
        files::check(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let text = std::fs::read_to_string(&args.file).map_err(|error| format!("{name}: {error}"))?;
    let problem = read_problem(&text).map_err(|error| format!("{name}: {error}"))?;
    let time_limit = match args.time_limit {
        None => None,
        Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|error| {
            format!("--time-limit {seconds}: {error}; give a number of seconds, such as 0.5")
        })?),
    };
    let options = Options { effort: args.effort.into(), capacity: args.capacity, time_limit };
    let start = Instant::now();
    let packing = patiently(&problem, &options).map_err(|error| format!("{name}: {error}"))?;
    let seconds = start.elapsed().as_secs_f64();
    if let Some(path) = &args.output {
        let write = || -> std::io::Result<()> {
            let mut file = Replacement::create(path)?;
            write_solution(&problem, &packing.solution, &mut file)?;
            file.commit()
        };
        write().map_err(|error| format!("{}: {error}", path.display()))?;
    }
    report(&problem, &packing, seconds, args.json);
    let height = packing.certificate.height;
    match args.capacity {
        Some(capacity) if height > capacity => {
            let bound = packing.certificate.lower_bound;
            let advice = match bound > capacity {
                true => "no packing can fit; shrink or shorten the buffers",
                false => "try --effort exact",
            };
            Err(format!("{name}: needs {height} bytes, more than the capacity of {capacity} (lower bound {bound}): {advice}")
                .into())
        }
        _ => Ok(()),
    }
}

/// Solves the problem on another thread and shows the elapsed seconds as progress.
fn patiently(problem: &Problem, options: &Options) -> Result<Packing, PackError> {
    let most = options.time_limit.map(|limit| limit.as_secs().max(1));
    let task = progress::task("packing: seconds", most);
    // The sender is dropped when the solver ends, even by a panic.
    let (working, done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().spawn_scoped(scope, move || {
            let _working = working;
            solve(problem, options)
        });
        // Without a thread, no progress is shown.
        let Ok(packing) = worker else { return solve(problem, options) };
        let start = Instant::now();
        while done.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
            task.done(start.elapsed().as_secs());
        }
        packing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn report(problem: &Problem, packing: &Packing, seconds: f64, json: bool) {
    let certificate = &packing.certificate;
    if json {
        println!("{}", packing_json(problem, packing, seconds));
        return;
    }
    println!("buffers      {}", problem.items.len());
    println!("lower bound  {} ({})", certificate.lower_bound, Bytes(certificate.lower_bound));
    println!("height       {} ({})", certificate.height, Bytes(certificate.height));
    println!("ratio        {:.5}", certificate.ratio());
    println!("optimal      {}", if certificate.optimal { "yes, proved" } else { "not proved" });
    println!("method       {}", certificate.method);
    println!("seconds      {seconds:.3}");
}
