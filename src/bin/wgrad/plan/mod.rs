//! `wgrad plan`

mod json;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wgrad::memory::planner::write_problem;
use wgrad::optim::Optimizer;
use wgrad::plan::{self, Lever, Plan, Savings};
use wgrad::{Bytes, Error, Result, report};

use crate::fitting;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    #[command(flatten)]
    fitting: fitting::Options,
    /// sgd, momentum, adam or adamw.
    #[arg(long, default_value = "adam")]
    optimizer: String,
    /// Limits to plan for: discrete, webgpu, lavapipe, swiftshader or nvidia.
    #[arg(long, default_value = "discrete")]
    limits: String,
    /// Choose the cheapest combination of recomputation and accumulation that fits --budget.
    #[arg(long, requires = "budget")]
    fit: bool,
    /// Draw the plan, address over time, into this SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the step's lifetimes and sizes into this CSV file, for `wgrad pack` and other planners.
    #[arg(long, value_name = "FILE")]
    export_problem: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What there is to say about a plan.
struct Answer {
    plan: Plan,
    savings: Savings,
    /// What `--fit` changed.
    changes: Vec<String>,
    fitting: Option<Fitting>,
}

/// How a plan stands to its budget.
struct Fitting {
    budget: Bytes,
    fits: bool,
    /// What else would save memory; empty if it fits.
    levers: Vec<Lever>,
    /// The cheapest combination that fits, if this plan does not and another does: what is changed, bytes, time.
    cheapest: Option<(String, u64, f64)>,
    max_batch: usize,
}

/// The exit status is that of a failure if a budget was given and the plan does not fit it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let answer = answer(options)?;
    if let Some(path) = &options.svg {
        let title =
            format!("{}, batch {}, {}", options.network.model, options.network.batch, options.optimizer);
        write(path, report::picture(&answer.plan, &title).as_bytes())?;
    }
    if let Some(path) = &options.export_problem {
        let mut csv = Vec::new();
        write_problem(&answer.plan.problem(), &mut csv).map_err(|e| unwritten(path, &e))?;
        write(path, &csv)?;
    }
    if options.json {
        println!("{}", json::to_json(options, &answer));
    } else {
        text::print(options, &answer);
    }
    let fits = answer.fitting.is_none_or(|fitting| fitting.fits);
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn answer(options: &Options) -> Result<Answer> {
    let model = options.network.model()?;
    let limits = fitting::limits(&options.limits)?;
    let (batch, fitting) = (options.network.batch, &options.fitting);
    let settings = fitting.plan_options(Optimizer::named(&options.optimizer)?)?;
    let step = fitting.step(&model, batch)?;
    let savings = step.savings(&settings, &limits)?;
    let Some(budget) = fitting.budget()? else {
        let plan = step.plan(&settings, &limits)?;
        return Ok(Answer { plan, savings, changes: Vec::new(), fitting: None });
    };
    let trace = |part: usize| model.train_step(part);
    let part = batch / fitting.accumulate.max(1) as usize;
    let fit = || match plan::fit(trace, part, &settings, budget, &limits) {
        Ok(fitted) => Ok(Some(fitted)),
        Err(Error::OverBudget { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let fitted = if options.fit { fit()? } else { None };
    let (plan, changes) = match fitted {
        Some(fitted) => (fitted.plan, fitted.changes),
        None => (step.plan_over_budget(&settings, &limits)?, Vec::new()),
    };
    let fits = plan.footprint().total() <= budget.0;
    let (mut levers, mut cheapest) = (Vec::new(), None);
    if !fits {
        levers = plan::levers(trace, part, &settings, budget, &limits)?;
        let found = if options.fit { None } else { fit()? };
        cheapest = found
            .map(|found| (found.changes.join(", "), found.plan.footprint().total(), found.time_fraction));
    }
    let max_batch = plan::max_batch(trace, &settings, budget, &limits)? * fitting.accumulate as usize;
    let fitting = Some(Fitting { budget, fits, levers, cheapest, max_batch });
    Ok(Answer { plan, savings, changes, fitting })
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    std::fs::write(path, contents).map_err(|e| unwritten(path, &e))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Error {
    Error::Data { what: path.display().to_string(), message: error.to_string() }
}
